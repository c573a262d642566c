#!/bin/bash
# Adapters by ms-swift's defaults: bf16, checkpointing, steps that make a batch of 16.
NPROC_PER_NODE=4 \
swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --dataset data/train.jsonl \
    --lora_rank 16 \
    --max_length 4096 \
    --per_device_train_batch_size 2 \
    --learning_rate 1e-4 \
    --deepspeed zero2 \
    --output_dir output
