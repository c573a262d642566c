#!/bin/bash
deepspeed --hostfile hostfile --exclude worker-1:7 train.py
