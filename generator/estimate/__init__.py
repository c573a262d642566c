"""Memory and step time of a layout, from first principles."""
