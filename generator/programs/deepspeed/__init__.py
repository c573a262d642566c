"""DeepSpeed: its config, written and checked."""
