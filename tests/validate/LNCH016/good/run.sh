#!/bin/bash
deepspeed --hostfile hostfile --launcher slurm train.py
