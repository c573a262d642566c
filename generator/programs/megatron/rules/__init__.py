"""Every rule on Megatron arguments by themselves."""
