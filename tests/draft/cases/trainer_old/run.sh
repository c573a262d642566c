#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
torchrun --nproc-per-node 8 train.py --deepspeed ds.json --per_device_train_batch_size 1 \
  --gradient_accumulation_steps 4 --gradient_checkpointing true --bf16 true --output_dir out
