"""The version, alone in a module so that packaging reads it without importing anything."""

__version__ = "0.3.0"
