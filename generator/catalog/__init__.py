"""What dsgen knows about hardware and models, every entry with its source."""
