#!/bin/bash
srun --ntasks-per-node=1 deepspeed train.py
