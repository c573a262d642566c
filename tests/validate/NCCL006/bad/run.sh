#!/bin/bash
export NCCL_SOCKET_IFACE=eth0
torchrun --nproc-per-node=8 train.py
