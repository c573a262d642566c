#!/bin/bash
torchrun --nproc-per-node=8 /opt/Megatron-Bridge/scripts/training/run_recipe.py \
  --model llama31_8b --mode sft --dataset local-jsonl -sl 8192 -gb 64 -mb 1 \
  --pretrained_checkpoint /data/models/Llama-3.1-8B --lr 5e-6 --max_steps 500 \
  dataset.dataset_root=/data/samples model.context_parallel_size=2 train.manual_gc=false
