#!/bin/bash
deepspeed --include localhost:0,1 a.py > a.log 2>&1 &
deepspeed --include localhost:2,3 --master_port 29501 b.py &
wait
