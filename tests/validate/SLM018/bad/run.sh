#!/bin/bash
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
python train.py
