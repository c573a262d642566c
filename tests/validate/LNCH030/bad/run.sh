#!/bin/bash
torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=127.0.0.1 train.py
