"""JSON Schemas of the job spec, plan.json, sweeps, calibrations and findings."""
