"""Every rule on Slurm jobs."""

MODULES = ("options", "directives", "script", "gpus", "resources", "steps", "shared")
