#!/bin/bash
torchrun --nproc_per_node 8 run_clm.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --dataset_name wikitext --block_size 4096 --bf16 true \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --max_steps 100 \
  --learning_rate 1e-5 --output_dir out
