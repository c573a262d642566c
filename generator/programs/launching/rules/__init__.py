"""Rules on launch lines, hostfiles and environment variables."""
