"""What belongs together: files that name one another, launch lines, and the job that they
describe.
"""
