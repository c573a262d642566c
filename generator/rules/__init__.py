"""Rules of planning, on jobs, layouts and estimates.

They are asked of numbers, of columns and of what files say.
"""
