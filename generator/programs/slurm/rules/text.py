"""A batch script as text: its first line and line ends, quotes, variables and placeholders in its directives."""

from __future__ import annotations

import re
from typing import Final

from ....facts.placeholders import is_placeholder
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.wording import show
from ....rules.sources import slurm, slurm_manual
from ...launching.script import LaunchScript
from ...subjects import blocks, scripts
from ..request import Request

_NEARLY: Final = re.compile(r"(?:[ \t]*#[ \t]*S[A-Z]{3,6}|#[sS]batch)\b[ \t:]*-{1,2}[A-Za-z]")
_DIRECTIVE: Final = re.compile(r"#(?:SBATCH|SLURM)")
_SLIPS: Final = frozenset({"SBATCH", "SBTACH", "SBACTH", "SABTCH", "SBATHC", "SBACH", "SBATC", "SBATH", "SBTCH"})
#: Options whose values Slurm takes as they are, and those in which a dollar sign is no slip.
_PATHS: Final = ("--output", "--error", "--input")
_NAMED: Final = frozenset(
    {*_PATHS, "--chdir", "--job-name", "--account", "--partition", "--qos", "--mail-user", "--reservation"}
    | {"--constraint", "--container-image", "--container-mounts", "--container-workdir"}
)
_FREE: Final = frozenset({"--comment", "--wrap", "--export"})
_NO_EXPANSION: Final = slurm("sbatch/opt.c:459, get_argument: no expansion of any kind")


@blocks.rule("SLM050", ERROR, "submit", slurm("sbatch/opt.c:525, get_argument"))
def quotes_are_closed(request: Request) -> Violations:
    """A quote that a #SBATCH line opens is closed on it.

    Prevents: sbatch: fatal: Unmatched `"`.
    Fix: close the quote on the same line"""
    for word in (w for line in request.shell.directives if not line.ignored for w in line.words):
        mark = _open_quote(word.raw)
        if mark:
            message = f"the {mark} on this #SBATCH line is not closed: sbatch refuses the script"
            yield Violation(request.shell.locate(word), message, f"add a {mark}")


def _open_quote(raw: str) -> str | None:
    mark: str | None = None
    for character in re.sub(r"\\.", "", raw, flags=re.DOTALL):
        if mark is None and character in "\"'":
            mark = character
        elif character == mark:
            mark = None
    return mark


@blocks.rule("SLM055", NOTE, "submit", slurm_manual("sbatch(1), --partition, --account"))
def placeholders_are_filled_in(request: Request) -> Violations:
    """No unfilled placeholder is left in a #SBATCH line.

    Prevents: sbatch: error: invalid partition specified: <your-partition>.
    Fix: fill it in"""
    left = [found for found in request.valued() if is_placeholder(found.value)]
    if left:
        others = "".join(f", {found.name}={found.value}" for found in left[1:])
        message = f"{left[0]}: {show(left[0].value)} looks like a placeholder"
        yield left[0].bad_value(message + (f"; so do{others.removeprefix(',')}" if others else ""), "fill it in")


@blocks.rule("SLM031", ERROR, "submit", _NO_EXPANSION)
def numbers_are_written_out(request: Request) -> Violations:
    """A #SBATCH line has no shell variables where Slurm reads a number or a time.

    Prevents: sbatch: error: "$NODES" is not a valid node count.
    Fix: write the value out, or give it on sbatch's command line"""
    yield from _variables(request, named=False)


@blocks.rule("SLM060", ERROR, "silent", _NO_EXPANSION)
def names_are_written_out(request: Request) -> Violations:
    """A #SBATCH line has no shell variables in names and paths.

    Prevents: A log in a folder called $HOME, which isn't there; a job called $NAME.
    Fix: write the value out, or give it on sbatch's command line"""
    yield from _variables(request, named=True)


def _variables(request: Request, *, named: bool) -> Violations:
    for found in request.valued():
        match = re.search(r"\$\{?[A-Za-z_]\w*\}?|\$\(|`", found.value)
        if match is None or (found.name in _NAMED) != named or found.name in _FREE:
            continue
        hint = f"write the value out, or give it on the command line: sbatch {found.name}=..."
        if found.name in _PATHS:
            hint = "use sbatch's own patterns, such as %x-%j.out, and a literal path"
        yield found.bad_value(f"{found}: sbatch expands no variables ({match[0]}); the text is used as it is", hint)


@scripts.rule("SLM032", ERROR, "submit", slurm("sbatch/sbatch.c:676 and 686, get_script_buffer"))
def sbatch_takes_the_file(script: LaunchScript) -> Violations:
    """A batch script begins with #! and its lines end as on Unix.

    Prevents: This does not look like a batch script; Batch script contains DOS line breaks.
    Fix: begin with #!/bin/bash; convert the line ends"""
    text = script.shell.text
    at = text.content.find("\r\n") if script.shell.directives else -1
    if script.shell.directives and script.shell.shebang is None:
        message = "the first line doesn't begin with #!: sbatch refuses the script"
        yield Violation(text.locate(0, 0), message, "begin the file with #!/bin/bash")
    if at >= 0:
        message = "the lines end as on DOS (\\r\\n): sbatch refuses the script"
        yield Violation(text.locate_offset(at), message, "convert the file: dos2unix, or sed -i 's/\\r$//'")


@scripts.rule("SLM035", WARNING, "silent", slurm("sbatch/opt.c:570: a line counts if it begins with #SBATCH"))
def directives_are_spelt(script: LaunchScript) -> Violations:
    """A comment that looks like a #SBATCH line is one: no space, no indentation, in capitals.

    Prevents: The option is ignored silently.
    Fix: write #SBATCH at the start of the line"""
    text, commands = script.shell.text, script.shell.commands
    if not script.shell.directives and not text.path.endswith((".sbatch", ".slurm")):
        return
    last = script.shell.locate(commands[0]).line if commands else None
    for number, line in enumerate(text.lines[: last or len(text.lines)]):
        if _NEARLY.match(line) and not _DIRECTIVE.match(line) and _first_word(line) in _SLIPS:
            message = f"this is a comment to sbatch: it begins with {show(line.partition('-')[0])}, not #SBATCH"
            hint = "write #SBATCH at the start of the line, or ##SBATCH to leave it out on purpose"
            severity = (
                NOTE if _first_word(line) == "SBATCH" and line.startswith("# ") else WARNING
            )  # left out on purpose
            where = text.locate(number, len(line) - len(line.lstrip()))
            yield Violation(where, message, hint, severity=severity)


def _first_word(line: str) -> str:
    return line.split("-")[0].strip().replace(" ", "").upper().rstrip(":")[1:]
