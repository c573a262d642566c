#!/bin/bash
deepspeed --hostfile hostfile --exclude worker-1:8 train.py
