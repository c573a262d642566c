#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --time=1-00:00:00

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR

srun --cpus-per-task=64 --kill-on-bad-exit=1 torchrun \
  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=8 \
  --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:29500" \
  pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 256 --bf16 --train-iters 1000 --lr 1e-4 --swiglu --use-rotary-position-embeddings --normalization rmsnorm --no-pipeline-parallel --zero-stage 1 --deepspeed --deepspeed_config ds_config.json
