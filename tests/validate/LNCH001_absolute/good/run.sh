#!/bin/bash
HOSTS=/tmp/hosts.$USER
scontrol show hostnames | sed "s/$/ slots=8/" > /tmp/hosts
deepspeed --hostfile /tmp/hosts train.py
