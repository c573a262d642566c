"""Accuracy and speed, each with one command; the figures are in RESULTS.md."""
