"""A batch script as text: its first line and line ends, quotes, variables and placeholders in its directives."""

from __future__ import annotations

import re
from typing import Final

from ....documents.document import LaunchScript
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import show
from ...rule import submissions
from ...sources import slurm, slurm_manual
from ..subjects import scripts
from .requests import Request, blocks

_NEARLY: Final = re.compile(r"(?:[ \t]*#[ \t]*S[A-Z]{3,6}|#[sS]batch)\b[ \t:]*-{1,2}[A-Za-z]")
_PLACEHOLDER: Final = re.compile(
    r"<[A-Za-z][\w .-]*>|\{\{.*\}\}|\b(?:your|my)[_-](?:partition|account|qos|project|name|email)\b|"
    r"\b(?:CHANGE[_-]?ME|FIXME|XXX+|TODO|PARTITION_NAME|ACCOUNT_NAME)\b",
    re.IGNORECASE,
)
#: Options whose values Slurm takes as they are, and those in which a dollar sign is no slip.
_NAMED: Final = frozenset(
    {
        "--output",
        "--error",
        "--input",
        "--chdir",
        "--job-name",
        "--account",
        "--partition",
        "--qos",
        "--mail-user",
        "--reservation",
        "--constraint",
        "--container-image",
        "--container-mounts",
        "--container-workdir",
    }
)
_FREE: Final = frozenset({"--comment", "--wrap", "--export"})
_DIRECTIVE: Final = re.compile(r"#(?:SBATCH|SLURM)")


@blocks.rule("SLM050", ERROR, "submit", slurm("sbatch/opt.c:525, get_argument"))
def quotes_are_closed(request: Request) -> Violations:
    """A quote that a #SBATCH line opens is closed on it.

    Prevents: sbatch: fatal: Unmatched `"`.
    Fix: Close the quote on the same line.
    """
    script = request.block
    for directive in script.shell.directives if script else ():
        for word in directive.words:
            mark = _open_quote(word.raw)
            if mark and not directive.ignored:
                message = f"the {mark} on this #SBATCH line is not closed: sbatch refuses the script"
                yield Violation(where=request.shell.locate(word), message=message, hint=f"add a {mark}")


def _open_quote(raw: str) -> str | None:
    mark: str | None = None
    position = 0
    while position < len(raw):
        character = raw[position]
        if character == "\\":
            position += 1
        elif mark is None and character in "\"'":
            mark = character
        elif character == mark:
            mark = None
        position += 1
    return mark


@blocks.rule("SLM055", WARNING, "submit", slurm_manual("sbatch(1), --partition, --account"))
def nothing_is_left_to_fill_in(request: Request) -> Violations:
    """No placeholder is left in a #SBATCH line.

    Prevents: sbatch: error: invalid partition specified: <your-partition>.
    Fix: Fill it in.
    """
    for option, value in request.values(*(entry.name for entry in request.options.entries)):
        if _PLACEHOLDER.search(value):
            message = f"{request.said(option)}: {show(value)} looks like a placeholder"
            yield Violation(where=request.at_value(option), message=message, hint="fill in the cluster's own name")


@submissions.rule(
    "SLM031",
    ERROR,
    "submit",
    slurm("sbatch/opt.c:459, get_argument: no expansion of any kind"),
    reads=("launch script",),
)
def numbers_are_written_out(submission: Submission) -> Violations:
    """A #SBATCH line has no shell variables where Slurm reads a number or a time.

    Prevents: sbatch: error: "$NODES" is not a valid node count.
    Fix: Write the value out, or give it on sbatch's command line.
    """
    yield from _variables(submission, named=False)


@submissions.rule(
    "SLM060",
    ERROR,
    "silent",
    slurm("sbatch/opt.c:459, get_argument: no expansion of any kind"),
    reads=("launch script",),
)
def names_are_written_out(submission: Submission) -> Violations:
    """A #SBATCH line has no shell variables in names and paths.

    Prevents: A log in a folder called $HOME, which isn't there; a job called $NAME.
    Fix: Write the value out, or give it on sbatch's command line.
    """
    yield from _variables(submission, named=True)


def _variables(submission: Submission, *, named: bool) -> Violations:
    for request in blocks(submission):
        for option, value in request.values(*(entry.name for entry in request.options.entries)):
            match = re.search(r"\$\{?[A-Za-z_]\w*\}?|\$\(|`", value)
            if match is None or (option.name in _NAMED) != named or option.name in _FREE:
                continue
            effect = "the name is taken as it is written"
            hint = f"write the value out, or give it on the command line: sbatch {option.name}=..."
            if option.name in ("--output", "--error", "--input"):
                hint = "use sbatch's own patterns, such as %x-%j.out, and a path that is written out"
            yield Violation(
                where=request.at_value(option),
                message=f"{request.said(option)}: sbatch expands no variables ({match[0]}); {effect}",
                hint=hint,
            )


@scripts.rule("SLM032", ERROR, "submit", slurm("sbatch/sbatch.c:676 and 686, get_script_buffer"))
def sbatch_takes_the_file(script: LaunchScript) -> Violations:
    """A batch script begins with #! and its lines end as on Unix.

    Prevents: This does not look like a batch script; Batch script contains DOS line breaks.
    Fix: Begin with #!/bin/bash; convert the line ends.
    """
    if not script.shell.directives:
        return
    text = script.shell.text
    if script.shell.shebang is None:
        yield Violation(
            where=text.locate(0, 0),
            message="the first line doesn't begin with #!: sbatch takes no such script",
            hint="begin the file with #!/bin/bash",
        )
    at = text.content.find("\r\n")
    if at >= 0:
        yield Violation(
            where=text.locate_offset(at),
            message="the lines end as on DOS (\\r\\n): sbatch takes no such script",
            hint="convert the file: dos2unix, or sed -i 's/\\r$//'",
        )


@scripts.rule(
    "SLM035", WARNING, "silent", slurm("sbatch/opt.c:570, _opt_batch_script: a line counts if it begins with #SBATCH")
)
def directives_are_spelt(script: LaunchScript) -> Violations:
    """A comment that looks like a #SBATCH line is one: no space, no indentation, in capitals.

    Prevents: The option is ignored without a word.
    Fix: Write #SBATCH at the start of the line.
    """
    yield from _nearly_directives(script)


def _nearly_directives(script: LaunchScript) -> Violations:
    text = script.shell.text
    if not script.shell.directives and not text.path.endswith((".sbatch", ".slurm")):
        return
    commands = [command.offset for command in script.shell.commands]
    last = script.shell.locate(commands[0]).line if commands else None
    for number, line in enumerate(text.lines[: last or len(text.lines)]):
        if _NEARLY.match(line) and not _DIRECTIVE.match(line):
            word = line.strip().split("-")[0].strip()
            if word.replace(" ", "").upper().rstrip(":")[1:] not in _SLIPS:
                continue
            yield Violation(
                where=text.locate(number, len(line) - len(line.lstrip())),
                message=f"this is a comment to sbatch: it begins with {show(line.partition('-')[0])}, not #SBATCH",
                hint="write #SBATCH at the start of the line, or ##SBATCH to leave it out on purpose",
            )


_SLIPS: Final = frozenset({"SBATCH", "SBTACH", "SBACTH", "SABTCH", "SBATHC", "SBACH", "SBATC", "SBATH", "SBTCH"})
