#!/bin/bash
accelerate launch --num_process 8 train.py
