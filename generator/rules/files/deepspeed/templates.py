"""What a template leaves behind in a DeepSpeed config, as a value or so that the text can't be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.deepspeed_config import BATCH_KEYS, Config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ....job.wording import printable
from ...rule import submissions
from ...sources import deepspeed
from .problem import is_placeholder, named, shown
from .subjects import configs
from .walk import problems

FILL: Final = "fill the template in before the job starts; DeepSpeed expands no variables"

#: Texts in quotes and remarks, which may say anything; else what a template writes for a value.
_WORDS: Final = re.compile(
    r'"(?:[^"\\\n]|\\.){0,300}"|(?:\#|//)[^\n]*|(?P<left>'
    r"\$\{[^}\n]{0,200}\}|\$[A-Za-z_]\w*|\$\([^)\n]{0,200}\)+"
    r"|\{\{-?\s{0,9}[A-Za-z_][^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}"
    r"|<[A-Za-z_][\w -]{0,60}>|%\(\w{1,60}\)s|@[A-Za-z_]\w{0,60}@"
    r"|(?<![\w.])[A-Z][A-Z0-9_]+\b(?!\s*:))",
    re.ASCII,
)
_MOST: Final = 20_000  #: characters that are looked through; a config has a few thousand
#: Numbers that the parser takes as they are and the engine computes with, at stages of ZeRO where it does.
COMPUTED_LATER: Final = {
    "/gradient_clipping": ((0, 1, 2, 3), "TypeError: '>' not supported between instances of 'str' and 'float'"),
    "/steps_per_print": ((0, 1, 2, 3), "TypeError: unsupported operand type(s) for %: 'int' and 'str'"),
    "/gradient_predivide_factor": ((0, 2, 3), "it is not 1.0, which ZeRO refuses, and no number to divide by"),
}


def batch_values(submission: Submission) -> Iterator[tuple[Config, str, object]]:
    """The batch keys that DeepSpeed computes with: each config, key and value."""
    for config in configs(submission):
        for key in BATCH_KEYS if not config.is_elastic else ():
            yield config, key, config.value(f"/{key}")


def leftover(config: Config, consumer: str) -> tuple[int, str] | None:
    """The offset and text of the first thing that a template left in a text that its reader can't read, if any."""
    broken = config.json.hjson_broken if consumer == "deepspeed" else config.json.broken
    if broken is None:
        return None
    found = (word for word in _WORDS.finditer(config.json.text.content[:_MOST]) if word["left"])
    first = next(found, None)
    return None if first is None else (first.start(), first["left"])


def is_variable(value: object) -> bool:
    """Whether the text where a number belongs is the name of a template's variable, such as GBSIZE."""
    capitals = isinstance(value, str) and value.rstrip(",").isalpha() and value.isupper()
    return capitals or is_placeholder(value)


@submissions.rule(
    "PARSE015",
    ERROR,
    "parse",
    deepspeed("runtime/zero/config.py:95, runtime/config.py:699"),
    reads=("DeepSpeed config",),
)
def templates_are_filled_in(submission: Submission) -> Violations:
    """No placeholder of a template is left where a value belongs.

    Prevents: ValidationError: Input should be 0, 1, 2 or 3 [input_value='ZERO_STAGE'], or HjsonDecodeError
    Fix: Fill the template in before the job starts.
    """
    yield from (problem.violation(config) for config, problem in problems(submission) if problem.rule == "PARSE015")
    for config, key, value in batch_values(submission):
        if isinstance(value, str) and value != "auto" and is_variable(value):
            message = f"`{key}` is {shown(value.rstrip(','))}, which nothing filled in"
            yield Violation(where=config.locate(f"/{key}"), message=message, hint=FILL)
    for config in configs(submission):
        for pointer in COMPUTED_LATER:
            value = config.value(pointer)
            if isinstance(value, str) and value != "auto" and is_variable(value):
                message = f"{named(pointer)} is {shown(value.rstrip(','))}, which nothing filled in"
                yield Violation(where=config.locate(pointer), message=message, hint=FILL)
    for config in submission.configs:
        left = leftover(config, submission.consumer)
        if left is not None:
            message = f"`{printable(left[1])[:80]}` stands where a value belongs: nothing filled it in, and the config"
            yield Violation(where=config.json.locate_offset(left[0]), message=f"{message} can't be read", hint=FILL)
