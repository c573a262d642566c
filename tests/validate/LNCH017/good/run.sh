#!/bin/bash
deepspeed --hostfile hostfile --launcher openmpi --launcher_args "--mca btl_tcp_if_include ib0" train.py
