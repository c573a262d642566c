#!/bin/bash
accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds_config.json \
  --gradient_accumulation_steps 2 train.py
