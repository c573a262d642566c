#!/bin/bash
set -euo pipefail
deepspeed --num_gpus 8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf \
  --deepspeed ds_config.json --output_dir out --per_device_train_batch_size 1 --bf16 --do_train --do_eval
