#!/bin/bash
accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds_config.json \
  --mixed_precision fp16 train.py
