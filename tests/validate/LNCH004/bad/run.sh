#!/bin/bash
deepspeed --hostfile hostfile --include worker-2:0,1 train.py
