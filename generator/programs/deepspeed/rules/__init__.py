"""The rules on DeepSpeed configs, but for those on one block, which `file_rules` names."""

MODULES = (
    *("reported", "batch", "choices", "precision", "zero", "zero_limits"),
    *("offload", "optimizer", "parallel", "running"),
)
