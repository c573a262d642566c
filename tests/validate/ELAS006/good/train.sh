#!/bin/bash
set -euo pipefail
export DEEPSPEED_ELASTICITY_CONFIG='{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "min_gpus": 1, "max_gpus": 10000, "version": 0.1}'
deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds_config.json
