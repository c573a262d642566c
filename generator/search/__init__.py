"""Enumerate, filter, estimate and rank layouts."""
