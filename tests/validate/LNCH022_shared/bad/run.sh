#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4

deepspeed --num_gpus 4 train.py
