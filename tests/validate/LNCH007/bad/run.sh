#!/bin/bash
deepspeed --hostfile hostfile --num_nodes 4 train.py
