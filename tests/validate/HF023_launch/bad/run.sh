#!/bin/bash
torchrun --nproc_per_node 8 train.py \
  --output_dir out \
  --per_device_train_batch_size 4 \
  --evaluation_strategy steps \
  --no_cuda \
  --report_to none
