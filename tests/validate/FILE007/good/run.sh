#!/bin/bash
# prints a word
echo start
