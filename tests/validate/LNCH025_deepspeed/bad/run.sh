#!/bin/bash
deepspeed --n_gpus 8 train.py
