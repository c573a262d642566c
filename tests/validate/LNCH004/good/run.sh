#!/bin/bash
deepspeed --hostfile hostfile --include worker-1:0,1 train.py
