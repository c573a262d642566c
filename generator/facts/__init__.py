"""Facts: what is known of a run, with its place; readers of text, and what every kind of file shares."""
