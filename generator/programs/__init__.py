"""One folder for each program that dsgen writes for and checks: its options, readers, writers and
rules.
"""
