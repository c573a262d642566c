"""Shell: scripts for plain machines."""
