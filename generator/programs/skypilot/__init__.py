"""SkyPilot: tasks, written and checked."""
