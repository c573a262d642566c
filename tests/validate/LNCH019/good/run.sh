#!/bin/bash
deepspeed --module train
