#!/bin/bash
torchrun --nproc_per_node 8 --no-python deepspeed train.py
