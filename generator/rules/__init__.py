"""Rules of planning: on jobs, layouts and estimates, asked of numbers, of columns and of what files
say.
"""
