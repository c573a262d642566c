#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
deepspeed --hostfile hostfile pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 \
  --tensor-model-parallel-size 2 --bf16 --lr 1.5e-4 --train-iters 1000
