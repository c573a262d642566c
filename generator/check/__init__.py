"""From paths to findings: `read` documents, divide them into submissions by `grouping`, and
`validate` these by rules.

`ignores` takes out what comments ignore; with `--engine`, `engine` asks the installed DeepSpeed.
"""
