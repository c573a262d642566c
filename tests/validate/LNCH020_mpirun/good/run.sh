#!/bin/bash
mpirun -np 2 --npernode 1 torchrun --nnodes 2 --nproc_per_node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29511" train.py
