"""Rules on Megatron arguments: on the options themselves, and on the job that is inferred from them."""
