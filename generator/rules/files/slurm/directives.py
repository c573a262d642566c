"""`#SBATCH` lines as sbatch reads them: which of them count, and whether each names an option."""

from __future__ import annotations

import re
from typing import Final

from ....documents.document import LaunchScript
from ....documents.shell.launch_line import Option
from ....findings import ERROR, WARNING, Edit, Severity, Violation, Violations
from ....job.wording import show
from ...sources import slurm, slurm_manual
from ..subjects import scripts
from .requests import Request, blocks, did_you_mean, requests

#: Hyphens and dashes that word processors put in the place of the plain one.
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
#: What other schedulers, srun, and DeepSpeed's users call what sbatch calls otherwise.
_OTHER_NAMES: Final = {
    "--walltime": "--time",
    "--queue": "--partition",
    "--name": "--job-name",
    "--memory": "--mem",
    "--mem-per-node": "--mem",
    "--cpus": "--cpus-per-task",
    "--gpu": "--gpus-per-node",
    "--ntask": "--ntasks",
    "--tasks": "--ntasks",
    "--workdir": "--chdir",
    "--share": "--oversubscribe",
    "--email": "--mail-user",
    "--logfile": "--output",
    "-g": "-G",
}
#: Each of them adds to those before. Sources: src/common/slurm_opt.c:2520 @ slurm-22-05-8-1; pyxis args.c, add_mount
_ADDED_UP: Final = frozenset({"--mail-type", "--gres-flags", "--container-mounts", "--container-env"})
#: srun's, which sbatch refuses; they belong on the srun line.
_OF_SRUN: Final = frozenset(
    {
        "--cpu-bind",
        "--kill-on-bad-exit",
        "--label",
        "--unbuffered",
        "--mpi",
        "--overlap",
        "--exact",
        "--pty",
        "--multi-prog",
        "--task-prolog",
        "--task-epilog",
        "--het-group",
    }
)


@scripts.rule("SLM007", ERROR, "silent", slurm("sbatch/opt.c:578, _opt_batch_script"))
def directives_come_first(script: LaunchScript) -> Violations:
    """Every #SBATCH line stands before the script's first command.

    Prevents: The option is ignored without a word: a job of one node, or with the default time limit.
    Fix: Move the line above the first command; even `set -e` is one.
    """
    late = [directive for directive in script.shell.directives if directive.ignored]
    first = script.shell.commands[0] if script.shell.commands else None
    for directive in late:
        if not directive.words:
            continue
        words = " ".join(word.raw for word in directive.words)
        line = script.shell.locate(first).line if first else None
        after = (
            f"the command on line {line}"
            if line is not None and first and first.offset < directive.offset
            else "a command"
        )
        yield Violation(
            where=script.shell.locate(directive),
            message=f"#SBATCH {words} stands after {after}: sbatch stops reading there, so it is ignored",
            hint="move it above the first command",
        )


@requests.rule(
    "SLM023",
    ERROR,
    "submit",
    slurm("common/slurm_opt.c (its table of options); names of later releases up to 26.05 are known too"),
)
def every_option_is_known(request: Request) -> Violations:
    """Every option given to sbatch, salloc or srun is one that it has.

    Prevents: sbatch: unrecognized option. A warning where no option is alike: a plug-in of the site may add it.
    Fix: Correct the name.
    """
    for option in request.options.unknown:
        if (written := option.written.value) is None or _matches(request, option.name):
            continue
        name = option.name
        plain = f"#SBATCH {name}" if request.block else f"{request.program} {name}"
        what = "script" if request.block else "call"
        if request.program == "sbatch" and name in _OF_SRUN:
            hint = f"give {name} to srun: srun {written} ..."
        else:
            near = _OTHER_NAMES.get(name) or did_you_mean(name, request.table)
            hint = f"did you mean {near}?" if near else "see sbatch --help on the cluster"
        yield Violation(
            where=request.at(option),
            message=f"{plain} is no option of {request.program}, which refuses the {what}",
            hint=hint,
            severity=Severity.WARNING if "--help" in hint and name.startswith("--") else Severity.ERROR,
        )


def _matches(request: Request, name: str) -> list[str]:
    """The options that an abbreviation may stand for."""
    if not name.startswith("--") or len(name) < 3:
        return []
    return sorted({known.name for spelling, known in request.table.options.items() if spelling.startswith(name)})


@requests.rule(
    "SLM024", ERROR, "submit", slurm_manual("sbatch(1); getopt_long(3) takes unambiguous beginnings of long names")
)
def abbreviations_are_unambiguous(request: Request) -> Violations:
    """A shortened option is the beginning of one option only.

    Prevents: sbatch: option '--gpu=8' is ambiguous.
    Fix: Write the option in full.
    """
    for option in request.options.unknown:
        found = _matches(request, option.name)
        if len(found) < 2 or option.written.value is None:
            continue
        better = _OTHER_NAMES.get(option.name) or did_you_mean(option.name, request.table) or found[0]
        plain = f"#SBATCH {option.name}" if request.block else f"{request.program} {option.name}"
        yield Violation(
            where=request.at(option),
            message=f"{plain} may stand for {len(found)} options: {', '.join(found[:4])}",
            hint=f"did you mean {better}?",
        )


@requests.rule("SLM026", ERROR, "submit", slurm_manual("sbatch(1), OPTIONS; getopt_long(3)"))
def options_have_their_values(request: Request) -> Violations:
    """An option has a value where it takes one, and none where it doesn't.

    Prevents: sbatch: option '--nodes' requires an argument, or '--requeue' doesn't allow one.
    Fix: Give the value, or leave it out.
    """
    for option in request.options.entries:
        known = request.table.find(option.name) if option.known else None
        if known is None:
            continue
        if known.values and not option.values and not request.options.opaque:
            message = f"{request.said(option)} has no value, and {request.program} requires one"
            yield Violation(where=request.at(option), message=message, hint=f"write {known.name}=VALUE")
        elif (attached := _attached(option)) is not None and known.values:
            message = f"{attached} gives {option.name} the value {show(attached[2:])}, with the equals sign"
            better = f"{known.name}{attached[2:]}"
            edits = request.mend(option.written, better)
            yield Violation(where=request.at(option), message=message, hint=f"write {better}", edits=edits)
        elif not known.values and not known.optional and option.values:
            message = f"{request.said(option)} has a value, but the option takes none"
            yield Violation(where=request.at(option), message=message, hint=f"write {known.name}")


def _attached(option: Option) -> str | None:
    """`-N=2`, where getopt takes the equals sign for a part of the value."""
    word = option.written.value
    return word if word is not None and re.match(r"-[A-Za-z]=", word) else None


@blocks.rule("SLM027", ERROR, "submit", slurm("sbatch/opt.c:631, _opt_batch_script"))
def nothing_but_options(request: Request) -> Violations:
    """A #SBATCH line has options and their values only.

    Prevents: sbatch: error: Invalid directive found in batch script.
    Fix: Quote values with spaces; put remarks behind a #.
    """
    if not request.options.rest:
        return
    word = request.options.rest[0]
    text = word.value or word.raw
    hint, edits = "put a value with spaces in quotes, and remarks behind a #", tuple[Edit, ...]()
    if text[:1] in _DASHES:
        plain = text.lstrip(_DASHES)
        hint = f"write two plain hyphens: --{plain}"
        edits = request.mend(word, f"--{plain}") if word.raw == text else ()
    elif "=" in text and did_you_mean(text.partition("=")[0], request.table):
        hint = f"did you mean --{text}?"
    message = f"#SBATCH has the word {show(text)}, which is no option: sbatch refuses the script"
    yield Violation(where=request.shell.locate(word), message=message, hint=hint, edits=edits)


@blocks.rule("SLM033", WARNING, "silent", slurm("common/slurm_opt.c:5344, slurm_process_option: the last one holds"))
def options_are_given_once(request: Request) -> Violations:
    """A #SBATCH option is given once, or always with the same value.

    Prevents: A job of another size than one reads at the top of the script.
    Fix: Keep one.
    """
    seen: dict[str, tuple[Option, str]] = {}
    for option, value in request.values(*(entry.name for entry in request.options.entries)):
        before = seen.get(option.name)
        if before is not None and before[1] != value and option.name not in _ADDED_UP:
            line = request.at(before[0]).line
            yield Violation(
                where=request.at(option),
                message=f"{request.said(option)} replaces {option.name}={before[1]} on line {line}",
                hint="keep one of the two",
            )
        seen[option.name] = (option, value)
