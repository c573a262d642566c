#!/bin/bash
deepspeed --hostfile hostfile --num_nodes 2 --num_gpus 8 train.py
