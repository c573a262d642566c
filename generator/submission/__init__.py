"""What belongs together.

Files that name one another, launch lines, and the job that they describe make a submission.
"""
