"""Rules on Megatron arguments, and on what a run described by them needs."""
