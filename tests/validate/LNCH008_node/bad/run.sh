#!/bin/bash
deepspeed --num_gpus 16 train.py
