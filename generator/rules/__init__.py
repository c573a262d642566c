"""Requirements on jobs, layouts, estimates and files, with ids, severities and sources."""
