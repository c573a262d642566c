"""Runs for `dsgen calibrate`: tables and training logs."""
