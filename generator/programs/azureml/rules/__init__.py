"""Every rule on AzureML jobs."""

MODULES = ("loading", "service", "files", "command")
