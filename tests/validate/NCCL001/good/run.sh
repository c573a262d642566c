#!/bin/bash
export NCCL_SOCKET_IFNAME=^lo,docker0
torchrun --nproc-per-node=8 train.py
