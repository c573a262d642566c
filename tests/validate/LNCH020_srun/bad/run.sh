#!/bin/bash
srun -n 8 torchrun --nproc_per_node 8 train.py
