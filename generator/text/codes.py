"""What is wrong with the text of a file, whatever it says. Ids are never reused."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..rule import rule_of_reader

#: A rule on the text of job specs, which the readers of text check and report.
rule_on_spec = partial(rule_of_reader, checks="spec", source="the job spec's own form")

UNREADABLE: Final = rule_on_spec("""SPEC001: The spec is a readable, non-empty UTF-8 text file.
    Prevents: There is nothing to plan; with a typing error in a script, another job would be
    planned.
    Fix: give the path of a text file with at least model, cluster, gpus and training.global_batch
    """)
SYNTAX: Final = rule_on_spec("""SPEC002: The spec is well-formed YAML 1.2 or JSON.
    Prevents: The rest of the file can't be trusted once its syntax is broken.
    Fix: correct the line shown; quote text with a colon or a bracket""")
DUPLICATE_KEY: Final = rule_on_spec("""SPEC003: A mapping has each key once.
    Prevents: The second value would silently win.
    Fix: keep one of the two""")
UNSUPPORTED_YAML: Final = rule_on_spec("""SPEC004: The spec is one document of plain data: no merge
    keys, no application tags.
    Prevents: Merge keys and tags mean different things to different readers.
    Fix: write the values out
    """)
TOO_LARGE: Final = rule_on_spec("""SPEC005: The spec stays within the limits of size, nesting and
    aliases.
    Prevents: A file of a few lines can expand to gigabytes of aliases.
    Fix: write the values out; a job spec has about 50
    """)
FORBIDDEN_CHARACTER: Final = rule_on_spec("""SPEC014: Text has no control characters, and names and
    paths have no line breaks.
    Prevents: A control character or line break could end a comment or a command in a launch script.
    Fix: write plain text on one line
    """)
