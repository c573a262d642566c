"""Rules on what the files of a submission say together.

They compare files with each other and with the job, and ask what fits in memory and time.
"""
