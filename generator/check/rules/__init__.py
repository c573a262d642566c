"""Rules on what the files of a submission say together: against each other, the job, and what fits
and lasts.
"""
