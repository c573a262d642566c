"""Requirements on jobs and layouts, with ids, severities and sources."""
