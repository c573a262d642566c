#!/bin/bash
deepspeed --hostfile hostfile --num_nodes 1 --include worker-0 train.py
