"""Rules on DeepSpeed configs."""
