#!/bin/bash
export NCCL_DEBUG_SUBSYS=INIT,WARN
torchrun --nproc-per-node=8 train.py
