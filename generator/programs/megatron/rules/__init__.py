"""Every rule on Megatron arguments by themselves."""

MODULES = ("options", "shape", "batch", "megatron_lm", "environment", "megatron_deepspeed")
