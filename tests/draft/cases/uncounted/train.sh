#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
MODEL="--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --swiglu --disable-bias-linear
    --position-embedding-type rope --seq-length 4096 --max-position-embeddings 4096
    --vocab-size 50000 --tokenizer-type NullTokenizer
    --num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 1024
    --moe-shared-expert-intermediate-size 1536
    --moe-token-dispatcher-type alltoall"
TRAINING="--micro-batch-size 1 --global-batch-size 256 --bf16 --train-iters 1000 --lr 1e-4
    --optimizer muon"
LAYOUT="--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 6
    --microbatch-group-size-per-virtual-pipeline-stage 4 --expert-model-parallel-size 8
    --fine-grained-activation-offloading --offload-modules moe_act
    --defer-embedding-wgrad-compute"
srun torchrun --nproc-per-node 8 pretrain_gpt.py $MODEL $TRAINING $LAYOUT
