"""Rules on AzureML command jobs."""
