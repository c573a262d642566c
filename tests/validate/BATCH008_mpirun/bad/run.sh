#!/bin/bash
mpirun -np 8 python train.py --deepspeed --deepspeed_config ds.json
