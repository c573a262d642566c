"""DeepSpeed's JSON, which is HJSON: read with places, and edited."""
