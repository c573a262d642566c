#!/bin/bash
deepspeed --hostfile=hostfile train.py --deepspeed_config ds_config.json
