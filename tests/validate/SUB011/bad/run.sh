#!/bin/bash
deepspeed --hostfile hostfile.16 --num_nodes 2 --num_gpus 8 train.py
