#!/bin/bash
deepspeed --hostfile hostfile train.py
