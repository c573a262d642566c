#!/bin/bash
echo start  # dsgen: ignore[BATCH0001]
