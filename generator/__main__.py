"""`python -m dsgen`."""

from .cli import run

run()
