#!/bin/bash
accelerate launch --config_file fsdp.yaml run_clm.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --dataset_name wikitext --block_size 4096 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_steps 100 \
  --learning_rate 1e-5 --bf16 --output_dir out
