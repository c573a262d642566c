"""Values with their places, as files have them: readers of text, and what every kind of file shares."""
