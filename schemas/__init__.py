"""JSON Schemas of the job spec and of plan.json."""
