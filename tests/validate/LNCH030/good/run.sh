#!/bin/bash
torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=worker-0 train.py
