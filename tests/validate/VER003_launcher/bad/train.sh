#!/bin/bash
deepspeed --hostfile=hostfile --elastic_training --min_elastic_nodes 1 --max_elastic_nodes 2 train.py --deepspeed_config ds_config.json
