"""Programs that start processes: torchrun, deepspeed, accelerate, srun, mpirun; their lines and host files."""
