"""The rules on launch lines and environment variables.

Those on hostfiles are named in `file_rules`.
"""
