"""Launch scripts: how bash reads them, and what they launch."""
