"""Every rule on AzureML jobs."""
