"""From paths to findings."""
