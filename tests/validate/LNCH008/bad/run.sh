#!/bin/bash
deepspeed --hostfile hostfile --num_gpus 16 train.py
