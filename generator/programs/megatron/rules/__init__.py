"""Every rule on Megatron arguments by themselves."""

MODULES = ("options", "shape", "batch", "megatron_lm", "memory", "environment", "megatron_deepspeed")
