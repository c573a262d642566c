#!/bin/bash
deepspeed --hostfile hostfile --launcher mpich --num_nodes 2 train.py
