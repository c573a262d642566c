#!/bin/bash
torchrun --nproc-per-node=all train.py
