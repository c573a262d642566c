#!/bin/bash
deepspeed --hostfile hostfile --launcher mpich train.py
