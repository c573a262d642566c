#!/bin/bash
accelerate launch --num_machines 2 --num_processes 8 --machine_rank "$NODE" --main_process_ip worker-0 --main_process_port 29511 train.py
