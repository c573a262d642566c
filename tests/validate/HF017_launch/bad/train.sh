#!/bin/bash
set -euo pipefail
accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 --use_fsdp --fsdp_version 2 \
  --use_parallelism_config --parallelism_config_tp_size 4 --parallelism_config_dp_shard_size 4 \
  train.py --lr 1e-4
