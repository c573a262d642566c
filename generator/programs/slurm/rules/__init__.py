"""Rules on the options of Slurm jobs."""
