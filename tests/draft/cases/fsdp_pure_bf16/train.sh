#!/bin/bash
torchrun --nproc-per-node 8 run_clm.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --dataset_name wikitext --block_size 4096 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_steps 100 \
  --learning_rate 1e-5 --dtype bfloat16 --output_dir out --fsdp --fsdp_config fsdp.json
