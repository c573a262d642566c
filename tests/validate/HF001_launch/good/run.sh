#!/bin/bash
torchrun --nproc_per_node 8 train.py \
  --output_dir out \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 4 \
  --learning-rate 1e-5 \
  --bf16 True \
  --deepspeed ds_config.json \
  --report_to none
