#!/bin/bash
srun -N 2 -n 2 torchrun --nnodes 2 --nproc_per_node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29511" train.py
