#!/bin/bash
deepspeed --no_python ./train
