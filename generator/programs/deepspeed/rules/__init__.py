"""The rules on DeepSpeed configs, but for those on one block, which `file_rules` names."""
