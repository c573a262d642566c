"""Every rule on AzureML jobs."""

MODULES = ("loading", "service", "command")
