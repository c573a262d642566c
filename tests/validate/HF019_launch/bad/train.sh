#!/bin/bash
set -euo pipefail
deepspeed --num_gpus 8 run_clm.py --model_name_or_path mistralai/Mixtral-8x7B-v0.1 \
  --deepspeed ds_config.json --output_dir out --per_device_train_batch_size 1 --bf16
