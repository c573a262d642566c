"""Readers of the files that `dsgen validate` checks."""
