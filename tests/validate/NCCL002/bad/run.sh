#!/bin/bash
export NCCL_IB_DISABLE=1
torchrun --nproc-per-node=8 train.py
