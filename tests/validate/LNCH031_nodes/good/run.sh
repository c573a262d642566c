#!/bin/bash
torchrun --nnodes=2:4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=worker-0:29511 train.py
