#!/bin/bash
deepspeed --num_gpus 8 train.py \
  --gradient_checkpointing --max_seq_len 2048 --deepspeed --deepspeed_config ds.json
