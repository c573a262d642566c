#!/bin/bash
torchrun --nproc_per_node 8 -m accelerate.commands.launch train.py
