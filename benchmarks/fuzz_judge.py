"""What an answer must keep to, whatever the input: `faults` lists how it doesn't."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

MOST_MIB: Final = 500
BEGIN_S: Final = 1.0  #: imports, which a worker makes once
S_PER_100_KB: Final = 1.0

#: Processor time of a real job's search beside what an input's size allows, by command.
PLANNING_S: Final = {
    "init": 3.0,
    "generate": 3.0,
    "plan": 3.0,
    "estimate": 1.0,
    "tune": 6.0,
    "sweep": 12.0,
    "report": 12.0,
    "calibrate": 6.0,
}

#: 5 says that dsgen itself is at fault.
STATUSES: Final = frozenset(range(5))

#: Lines that GitHub's runner takes for commands (at the start, blanks left out) and Azure's agent
#: (anywhere).
_GITHUB: Final = re.compile(r"\s*::[A-Za-z][\w-]*(?: [^:]*)?::")
_AZURE: Final = re.compile(r"##(?:vso)?\[")
_OWN: Final = {
    "github": re.compile(r"::(?:error|warning|notice|group|endgroup)\b"),
    "azure": re.compile(r"##vso\[task\.(?:logissue|complete) [^\]]*\]|##\[(?:group|endgroup)\]"),
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def allowed_s(arguments: Sequence[str], size: int) -> float:
    """Seconds of processor time for a command on inputs of `size` bytes."""
    planning = PLANNING_S.get(arguments[0], 0.0) if arguments else 0.0
    return BEGIN_S + S_PER_100_KB * size / 1e5 + planning


def form_of(arguments: Sequence[str]) -> str:
    """What `--format` names, or nothing."""
    forms = [after for flag, after in pairwise(arguments) if flag == "--format"]
    return forms[-1] if forms else ""


def faults(
    arguments: Sequence[str],
    status: object,
    printed: str,
    told: str,
    written: str,
    secrets: Collection[str],
) -> list[str]:
    """How an answer breaks what all answers keep to.

    `printed` and `told` are its standard output and error, `written` the text of the files that it
    made, and `secrets` what none of these may hold.
    """
    form = form_of(arguments)
    problems = [] if status in STATUSES else [f"status {status}: {told[-2000:]}"]
    problems += [
        f"{name} shows {secret!r}"
        for name, text in (("output", printed + told), ("file", written))
        for secret in secrets
        if secret in text
    ]
    problems += [
        f"a runner's command: {line[:200]!r}"
        for line in re.split(r"[\r\n]", printed + told)
        if _commands(line, form)
    ]

    # A diff has the ends of a file's lines as they are.
    is_diff = not {"--diff", "--fix"}.isdisjoint(arguments)
    shown = printed.replace("\r\n", "\n") if is_diff else printed
    control = _CONTROL.search(shown) or _CONTROL.search(told)
    if control and form != "csv":
        problems.append(f"control character {control[0]!r}")
    if form in ("json", "sarif") and not (status == 2 and not printed):
        problems += _not_json(printed)
    return problems


def _commands(line: str, form: str) -> bool:
    """Whether a line is a command that dsgen doesn't mean in this format."""
    if form in _OWN:
        line = _OWN[form].sub("", line, count=1)
    return bool(_GITHUB.match(line) or _AZURE.search(line))


def _not_json(text: str) -> list[str]:
    def constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        json.loads(text, parse_constant=constant)
    except ValueError as problem:
        return [f"output is no JSON: {problem}: {text[:200]!r}"]
    return []


def made_since(before: Collection[Path], folder: Path) -> str:
    """The text of the files in `folder` that were not there before."""
    new = [
        path
        for path in folder.rglob("*")
        if path not in before and not path.is_symlink() and path.is_file()
    ]
    return "\n".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in new
        if path.stat().st_size < 2**24
    )
