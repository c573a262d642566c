#!/bin/bash
export CUDA_LAUNCH_BLOCKING=1
torchrun --nproc-per-node=8 train.py
