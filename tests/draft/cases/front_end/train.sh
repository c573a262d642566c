#!/bin/bash
# GRPO of ms-swift on one node: Megatron trains, vLLM generates on the same GPUs.
NPROC_PER_NODE=8 \
megatron rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen3-8B \
    --dataset data/math.jsonl \
    --tensor_model_parallel_size 4 \
    --sequence_parallel true \
    --micro_batch_size 1 \
    --global_batch_size 32 \
    --num_generations 8 \
    --steps_per_generation 4 \
    --recompute_granularity full \
    --recompute_method uniform \
    --recompute_num_layers 1 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.4 \
    --max_length 4096 \
    --lr 1e-6 \
    --output_dir out
