"""Shell: scripts read as bash reads them, and written for plain machines."""
