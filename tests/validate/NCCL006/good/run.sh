#!/bin/bash
export NCCL_SOCKET_IFNAME=eth0
torchrun --nproc-per-node=8 train.py
