#!/bin/bash
deepspeed --no_python torchrun --nproc_per_node 8 train.py
