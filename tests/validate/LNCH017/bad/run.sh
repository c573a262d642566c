#!/bin/bash
deepspeed --hostfile hostfile --launcher openmpi train.py
