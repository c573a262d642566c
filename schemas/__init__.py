"""JSON Schemas of the job spec and of the documents that commands print and write."""
