#!/bin/bash
torchrun --nnodes=1 --nproc-per-node=8 scripts/training/run_recipe.py \
  --recipe vanilla_gpt_pretrain_config --mode pretrain \
  model.num_layers=32 \
  model.hidden_size=4096 \
  model.num_attention_heads=32 \
  model.tensor_model_parallel_size=2 \
  dataset.seq_length=4096 \
  dataset.data_path=/data/text_document \
  train.micro_batch_size=1 \
  train.global_batch_size=256 \
  train.train_iters=1000 \
  optimizer.lr=1e-4 \
  optimizer.weight_decay=0.1 \
  scheduler.start_weight_decay=0.1 \
  scheduler.end_weight_decay=0.1 \
  scheduler.lr_warmup_iters=0 \
  scheduler.lr_warmup_fraction=0.01 \
  checkpoint.save=/data/run
