"""Go from paths to findings.

`read` reads documents, `grouping` divides them into submissions, and `validate` applies the rules.

`ignores` takes out what comments ignore; with `--engine`, `engine` asks the installed DeepSpeed.
"""
