#!/bin/bash
srun --nodes 2 --ntasks 2 bash -c 'accelerate launch --config_file accelerate.yaml --machine_rank $SLURM_NODEID train.py'
