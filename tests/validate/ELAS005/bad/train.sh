#!/bin/bash
deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 1 --global-batch-size 32 --train-iters 1000 --lr 0.0001 --bf16 \
    --deepspeed --deepspeed_config ds_config.json --zero-stage 1
