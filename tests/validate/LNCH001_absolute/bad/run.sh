#!/bin/bash
deepspeed --hostfile /job/nohost train.py
