"""Facts: what is known of a run, with its place."""
