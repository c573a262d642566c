#!/bin/bash
srun --ntasks-per-node=8 deepspeed train.py
