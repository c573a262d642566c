#!/bin/bash
deepspeed --hostfile hostfile --no_ssh --node_rank 0 --master_addr worker-0 train.py
