#!/bin/bash
set -euo pipefail
deepspeed --hostfile "$HOSTFILE" pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 8 --micro-batch-size 2 --global-batch-size 8 \
  --bf16 --train-iters 100000 --lr 3e-4 --min-lr 3e-5 --lr-warmup-iters 2000 \
  --tokenizer-type GPTSentencePieceTokenizer --tokenizer-model /data/tokenizer.model --data-path /data/corpus \
  --deepspeed --deepspeed_config ds_config.json --zero-stage 1
