#!/bin/bash
export WANDB_PROJECT=llama
deepspeed --hostfile hostfile train.py
