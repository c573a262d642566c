#!/bin/bash
accelerate launch --no_python deepspeed train.py
