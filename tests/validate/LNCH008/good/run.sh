#!/bin/bash
deepspeed --hostfile hostfile --num_gpus 8 train.py
