#!/bin/bash
torchrun --nproc-per-node=gpu train.py
