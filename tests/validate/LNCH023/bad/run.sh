#!/bin/bash
deepspeed --hostfile hostfile --launcher pdssh train.py
