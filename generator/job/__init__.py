"""Job spec text to `Job`; Hugging Face config.json to a model."""
