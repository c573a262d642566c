#!/bin/bash
deepspeed --hostfile hostfile --include worker-0 --exclude worker-1 train.py
