"""Requirements on jobs."""
