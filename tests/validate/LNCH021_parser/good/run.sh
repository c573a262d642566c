#!/bin/bash
deepspeed --num_gpus 8 --no_local_rank train.py --lr 1e-4
