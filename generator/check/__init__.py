"""From paths to findings: `validate.py` reads documents, makes a submission of them, and runs the rules.

`ignores.py` takes out what comments ignore; with `--engine`, `ask_engine.py` asks the DeepSpeed that `engine.py` runs.
"""
