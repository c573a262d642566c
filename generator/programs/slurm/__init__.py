"""Slurm: batch scripts, written and checked."""
