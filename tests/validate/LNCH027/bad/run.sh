#!/bin/bash
torchrun --nnodes=2 --nproc-per-node=8 --master-addr=worker-0 train.py
