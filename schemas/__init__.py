"""JSON Schemas of the job spec, plan.json, calibrations and findings."""
