"""Every rule on Slurm jobs."""
