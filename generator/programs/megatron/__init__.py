"""Megatron-LM and Megatron-DeepSpeed: their arguments, written and checked."""
