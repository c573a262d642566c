"""`python -m dsgen`."""

from .cli import main

main()
