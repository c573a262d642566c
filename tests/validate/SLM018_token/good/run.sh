#!/bin/bash
huggingface-cli login --token "$HF_TOKEN"
python train.py
