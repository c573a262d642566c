#!/bin/bash
huggingface-cli login --token hf_abcdefghijklmnopqrstuvwxyz0123456789
python train.py
