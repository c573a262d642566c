#!/bin/bash
deepspeed --no_python --no_local_rank --module train
