#!/bin/bash
deepspeed --hostfile hostfile --launcher pdsh train.py
