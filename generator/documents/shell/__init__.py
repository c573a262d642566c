"""Launch scripts: what bash makes of them, and what they launch."""
