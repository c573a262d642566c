"""Runs over several jobs, on a real Slurm, with training scripts that save."""
