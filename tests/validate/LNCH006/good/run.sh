#!/bin/bash
deepspeed --hostfile hostfile --num_nodes 2 train.py
