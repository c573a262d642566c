#!/bin/bash
export NCCL_IB_DISABLE=0
torchrun --nproc-per-node=8 train.py
