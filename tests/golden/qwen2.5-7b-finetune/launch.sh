#!/bin/bash
# Written by dsgen 0.1.0: dsgen generate
# qwen2.5-7b-sft: qwen2.5-7b on 8 GPUs (1 nodes of aws/p4de.24xlarge), huggingface. Data 8 x tensor 1 x pipeline
# 1 x context 1; global batch 128 = 2 x 8 x 8.
# The plan counts on sequences of 2048 tokens and attn_implementation=flash_attention_2: both are the script's
# to set, TrainingArguments has neither.
#
# Run in the folder that holds the training script.

# What is in single quotes is data.
# shellcheck disable=SC1003,SC2016,SC2088
set -euo pipefail

NODES=1
PROCESSES_PER_NODE=8

CONFIG_DIR="${DSGEN_CONFIG_DIR:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)}"
CONFIG_FILES=( ds_config.json )
for file in "${CONFIG_FILES[@]}"; do
  if [[ ! -r "$CONFIG_DIR/$file" ]]; then
    echo "cannot read $CONFIG_DIR/$file: set DSGEN_CONFIG_DIR to the folder of launch.sh" >&2
    exit 1
  fi
done

# Passed to every process on its command line: ssh forwards no environment.
ENVIRONMENT=(
  OMP_NUM_THREADS=12
)

SCRIPT=run_sft.py
ARGUMENTS=(
  # ZeRO and the optimizer; the arguments below repeat its numbers
  --deepspeed "$CONFIG_DIR"/ds_config.json
  # batch per device and pass, and passes per step
  --per_device_train_batch_size 2
  --gradient_accumulation_steps 8
  # precision and recomputation
  --bf16 true
  --gradient_checkpointing false
  # optimizer: the same as in the JSON, or the Trainer refuses to start
  --learning_rate 1e-05
  --weight_decay 0
  --adam_beta1 0.9
  --adam_beta2 0.95
  --adam_epsilon 1e-08
  --max_grad_norm 1
  # duration
  --max_steps 1172
  # from the job's launch.arguments
  --model_name_or_path Qwen/Qwen2.5-7B
  --output_dir out
  --dataset_name 'my data/sft set'
)

# One node needs no rendezvous with others; --standalone takes a free port.
exec env "${ENVIRONMENT[@]}" torchrun --standalone --nnodes="$NODES" --nproc-per-node="$PROCESSES_PER_NODE" \
  "$SCRIPT" "${ARGUMENTS[@]}"
