#!/bin/bash
mpirun -np 8 torchrun --nproc_per_node 8 train.py
