#!/bin/bash
export NCCL_DEBUG=1
torchrun --nproc-per-node=8 train.py
