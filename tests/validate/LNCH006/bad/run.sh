#!/bin/bash
deepspeed --num_nodes 2 train.py
