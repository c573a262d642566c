#!/bin/bash
accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 \
  --use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false \
  --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer \
  --fsdp_state_dict_type FULL_STATE_DICT --fsdp_activation_checkpointing true \
  --use_parallelism_config --parallelism_config_dp_replicate_size 2 --parallelism_config_dp_shard_size 4 \
  run_clm.py \
  --model_name_or_path meta-llama/Llama-2-7b-hf --dataset_name wikitext --block_size 4096 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_steps 100 \
  --learning_rate 1e-5 --output_dir out
