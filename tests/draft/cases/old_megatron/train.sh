#!/bin/bash
GPUS=16
deepspeed --num_nodes 2 --num_gpus 8 ${DIR}/pretrain_gpt.py \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 --no-pipeline-parallel \
    --micro-batch-size 8 --global-batch-size 256 --train-samples 1000000 --rampup-batch-size 32 32 100000 \
    --lr 2e-4 --lr-decay-samples 900000 --fp16 --checkpoint-activations --deepspeed-activation-checkpointing \
    --data-path 0.3 <PATH TO ONE> 0.7 <PATH TO OTHER> --save $OUT --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \
    --deepspeed --deepspeed_config ds.json --zero-stage 1 $@
