"""The --local_rank that deepspeed puts before the program's own arguments."""

from __future__ import annotations

import re
from typing import Final

from ....documents.shell.launch_line import Launch
from ....documents.submission import Submission
from ....findings import WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed_now
from .launch_calls import at, calls_of
from .program_text import program_text

#: What takes options that nobody declared, or declares more than can be seen here.
_TAKES_MORE: Final = re.compile(
    r"local[_-]rank|parse_known_args|HfArgumentParser|add_config_arguments|parents\s*=|REMAINDER|\bsys\.argv\b"
)
_OWN_PARSER: Final = re.compile(r"\bArgumentParser\s*\(")
_PARSES: Final = re.compile(r"\.parse_args\s*\(\s*\)")
_FOREIGN: Final = re.compile(r"\b\w+\(\s*(?:\w+\s*=\s*)?(?:parser|ap|p|arg_parser|argparser)\s*[,)]")  # adds options


@submissions.rule("LNCH021", WARNING, "init", deepspeed_now("launcher/launch.py:235, main"), reads=("launch script",))
def program_takes_its_local_rank(submission: Submission) -> Violations:
    """A program that deepspeed starts takes --local_rank, or --no_local_rank is given.

    Prevents: unrecognized arguments: --local_rank=0. Read from the program's text, where it lies beside the script.
    Fix: parser.add_argument("--local_rank", type=int), or --no_local_rank.
    """
    for launch, call in calls_of(submission, "deepspeed"):
        option = call.options.get("--no_python")
        if call.options.has("--no_local_rank") or call.options.opaque:
            continue
        message, where = "deepspeed puts --local_rank=N behind the program, before its own arguments", None
        if option is not None:
            where = at(launch, option)
        elif launch.program is not None and launch.calls[-1] is call and _refuses(launch):
            where = launch.script.locate(launch.program)
            message += f", and {launch.program.raw} has no such option"
        if where is not None:
            hint = "add --no_local_rank: LOCAL_RANK is set as well"
            yield Violation(where=where, message=message, hint=hint)


def _refuses(launch: Launch) -> bool:
    """Whether the program's own parser stops at an option that it doesn't declare."""
    text = program_text(launch)
    if text is None or _TAKES_MORE.search(text) or _FOREIGN.search(text):
        return False
    return _OWN_PARSER.search(text) is not None and _PARSES.search(text) is not None
