#!/bin/bash
export NCCL_DEBUG_SUBSYS=INIT,NET
torchrun --nproc-per-node=8 train.py
