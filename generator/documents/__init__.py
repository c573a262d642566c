"""Readers of documents other than job specs: those that `dsgen validate` checks, and runs for `dsgen calibrate`."""
