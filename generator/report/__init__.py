"""The report: a plan, what it takes, and what it was chosen from, as one page of HTML."""
