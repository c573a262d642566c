#!/bin/bash
# dsgen: ignore[BATCH001]
echo start
