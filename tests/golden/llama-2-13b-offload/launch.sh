#!/bin/bash
# Written by dsgen 0.3.0: dsgen generate
# Job llama-2-13b-offload: deepspeed trains llama-2-13b on 1 × azure/standard_nd96asr_v4.
# 8 GPUs = 8 data × 1 tensor × 1 pipeline × 1 context; ZeRO 3, recompute full, offload optimizer.
# 64 sequences a step = 8 micro batch × 1 accumulated × 8 data. plan.json has the estimates and reasons.
# Written for torch >=2.0.0, DeepSpeed 0.19.8.
# The job doesn't set learning_rate (0.0001), weight_decay (0.1), gradient_clipping (1): these are dsgen's
# defaults.
# recompute full: the script must checkpoint every layer itself.
# training.duration is 1000 optimizer steps: the script must stop there.
# ds_config.json has no scheduler: the learning rate is constant, unless the script passes lr_scheduler to
# deepspeed.initialize.
#
# Run in the folder that holds the training script.

# Text in single quotes is not expanded on purpose.
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
  # A process's share of the node's cores; torchrun would set OMP_NUM_THREADS to 1.
  OMP_NUM_THREADS=12
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
)

SCRIPT=train.py
ARGUMENTS=(
  # batch, precision, optimizer and ZeRO are in the JSON
  --deepspeed
  --deepspeed_config "$CONFIG_DIR"/ds_config.json
)

# One node needs no rendezvous with others; --standalone takes a free port.
TRAINING=(
  env "${ENVIRONMENT[@]}" torchrun --standalone --nnodes="$NODES" --nproc-per-node="$PROCESSES_PER_NODE"
  "$SCRIPT" "${ARGUMENTS[@]}"
)
exec "${TRAINING[@]}"
