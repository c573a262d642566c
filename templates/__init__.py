"""Jinja templates of the launchers."""
