#!/bin/bash
deepspeed --hostfile hostfile --include worker-0 train.py
