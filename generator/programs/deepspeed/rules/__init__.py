"""The rules on DeepSpeed configs, and on a job as its config describes it."""
