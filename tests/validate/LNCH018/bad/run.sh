#!/bin/bash
deepspeed --hostfile hostfile --no_ssh --master_addr worker-0 train.py
