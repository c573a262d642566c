"""Every rule on TrainingArguments and accelerate configs."""
