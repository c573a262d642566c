"""Every rule on TrainingArguments and accelerate configs."""

MODULES = ("configs", "arguments", "accelerate", "accelerate_deepspeed")
