"""Text as data with its places: readers that know no program."""
