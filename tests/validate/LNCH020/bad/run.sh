#!/bin/bash
torchrun --nproc-per-node=8 deepspeed train.py
