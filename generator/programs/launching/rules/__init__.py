"""The rules on launch lines and environment variables; those on hostfiles are named in
`file_rules`.
"""
