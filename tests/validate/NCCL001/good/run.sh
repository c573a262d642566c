#!/bin/bash
export NCCL_SOCKET_IFNAME=^lo,docker0
torchrun --nnodes=2 --node-rank="$NODE" --master-addr=worker-0 --nproc-per-node=8 train.py
