#!/bin/bash
export WANDB_API_KEY="$(< ~/.wandb)"
python train.py
