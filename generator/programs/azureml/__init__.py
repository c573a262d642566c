"""AzureML: command jobs, written and checked."""
