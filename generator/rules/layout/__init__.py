"""Requirements on layouts."""
