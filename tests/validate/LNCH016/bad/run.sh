#!/bin/bash
deepspeed --hostfile hostfile --launcher slurm --include worker-0 train.py
