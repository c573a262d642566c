"""Rules on SkyPilot tasks."""
