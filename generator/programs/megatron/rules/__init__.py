"""Rules on Megatron arguments by themselves."""
