"""Job spec text to `Job`."""
