"""Rules on TrainingArguments and accelerate configs."""
