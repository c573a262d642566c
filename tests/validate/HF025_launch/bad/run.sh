#!/bin/bash
torchrun --nproc_per_node 8 train.py \
  --output_dir out \
  --per_device_train_batch_size 4 \
  --num_train_epochs three \
  --bf16 maybe \
  --save_steps 1e3 \
  --report_to none
