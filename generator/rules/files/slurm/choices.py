"""Slurm's options with a form or a set of values of their own: signals, mail, arrays, modes."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.loader import closest
from ....findings import ERROR, Severity, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...sources import slurm, slurm_manual
from . import values
from .options import known_values
from .requests import Request, requests

_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{0,9})(?::\d+)?)?", re.ASCII)
_MAIL_TYPES: Final = (
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
)
#: Options with a fixed set of values, compared without case.
_CHOICES: Final = {
    "--exclusive": ("user", "mcs", "exclusive", "oversubscribe", "topo"),  # topo: since 23.11
    "--kill-on-invalid-dep": ("yes", "no"),
    "--wait-all-nodes": ("0", "1"),
    "--hint": ("compute_bound", "memory_bound", "multithread", "nomultithread", "help"),
}

#: Options whose values have a form: what they look like, and examples. Sources: sbatch(1) of Slurm 22.05.8.
_FORMS: Final = {
    "--dependency": (
        re.compile(
            r"(?:(?:after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand):\S*\d\S*|singleton|\$.*)"
            r"(?:[,?](?:[a-z]+:\S+|singleton))*"
        ),
        "afterok:JOBID or singleton",
    ),
    "--distribution": (
        re.compile(
            r"plane(?:=\d+)?|(?:block|cyclic|arbitrary|\*)(?::(?:block|cyclic|fcyclic|\*)){0,2}(?:,(?:no)?pack)?"
        ),
        "block, cyclic or plane=8",
    ),
    "--gpu-bind": (
        re.compile(r"(?:v(?:erbose)?,)?(?:[cn]\w*|single:\S*|(?:map_gpu|mask_gpu|per_task):\S+)"),
        "closest, none or single:1",
    ),
    "--profile": (
        re.compile(r"(?:all|none|(?:energy|lustre|network|task)(?:,(?:energy|lustre|network|task))*)"),
        "task",
    ),
    "--switches": (re.compile(r"\d+(?:@[\d:-]+)?"), "1 or 1@24:00:00"),
}


@requests.rule(
    "SLM056",
    ERROR,
    "submit",
    slurm_manual("sbatch(1), --dependency, --distribution, --gpu-bind, --profile, --switches"),
)
def values_have_their_form(request: Request) -> Violations:
    """Dependencies, distributions, GPU binding, profiles and switches are written in Slurm's forms.

    Prevents: sbatch: error: Invalid --distribution specification; Job dependency problem.
    Fix: Write it in the form of the manual page.
    """
    for option, text in known_values(request, *_FORMS):
        if option.name == "--dependency" and request.options.get("--dependency") is not option:
            continue  # Slurm reads the last one only
        form, example = _FORMS[option.name]
        if form.fullmatch(text.lower()) is None:
            message = f"{request.said(option)}: {show(text)} is not of the form that {option.name} has"
            yield Violation(where=request.at_value(option), message=message, hint=f"such as {example}")


@requests.rule("SLM041", ERROR, "submit", slurm("common/proc_args.c:1096, get_signal_opts"))
def signal_is_read(request: Request) -> Violations:
    """--signal is [B:]SIGNAL[@SECONDS] with at most 65535 seconds.

    Prevents: sbatch: error: Invalid --signal specification.
    Fix: Write B:USR1@300: signal USR1 to the batch shell 300 seconds before the limit.
    """
    for option, text in known_values(request, "--signal"):
        if values.signal_of(text) is None and request.program == "sbatch":
            message = f"{request.said(option)}: {show(text)} is not [B:]SIGNAL[@SECONDS]"
            yield Violation(where=request.at_value(option), message=message, hint=_signal_hint(text))


def _signal_hint(text: str) -> str:
    match = re.search(r"[@:](\d{1,6})([smh]?)$", text)
    seconds = int(match[1]) * {"m": 60, "h": 3_600}.get(match[2], 1) if match else 300
    name = next((signal for signal in values.SIGNALS if signal in text.upper()), "USR1")
    seconds = min(seconds, values.MOST_SIGNAL_SECONDS)
    return f"write --signal={'B:' if text[:2].upper() == 'B:' else ''}{name}@{seconds}"


@requests.rule(
    "SLM038",
    ERROR,
    "submit",
    slurm("common/proc_args.c:805, parse_mail_type: unknown words among known ones are passed over"),
)
def mail_types_exist(request: Request) -> Violations:
    """Every --mail-type is one that Slurm sends mail for.

    Prevents: sbatch: error: Invalid --mail-type specification; or no mail when the job fails.
    Fix: Name kinds that exist, separated by commas.
    """
    for option, text in known_values(request, "--mail-type"):
        words = [word for word in text.split(",") if word]
        wrong = [word for word in words if word.upper() not in _MAIL_TYPES]
        if not wrong and words:
            continue
        all_wrong = len(wrong) == len(words)
        near = closest(wrong[0], [name.lower() for name in _MAIL_TYPES]) if wrong else None
        effect = "sbatch refuses it" if all_wrong else "sbatch passes over it silently"
        message = f"{request.said(option)}: {wrong[0] if wrong else 'an empty text'} is no kind of mail; {effect}"
        hint = f"did you mean {near.upper()}?" if near else listed(_MAIL_TYPES[:6])
        severity = Severity.ERROR if all_wrong else Severity.WARNING
        yield Violation(where=request.at_value(option), message=message, hint=hint, severity=severity)


@requests.rule("SLM039", ERROR, "submit", slurm_manual("sbatch(1), --array"))
def array_is_read(request: Request) -> Violations:
    """--array is numbers and ranges, such as 0-3 or 1,4,7 or 0-15%4.

    Prevents: Invalid job array specification.
    Fix: Write numbers and ranges: 0-3, 1,4,7 or 0-15%4.
    """
    for option, text in known_values(request, "--array", last=True):
        if text == "" or _is_array(text):
            continue
        numbers = re.findall(r"\d{1,9}", text)
        pair = sorted(map(int, numbers[:2]))
        hint = f"write --array={pair[0]}-{pair[1]}" if len(pair) == 2 else "such as --array=0-3"
        message = f"{request.said(option)}: {show(text)} is no list of job numbers"
        yield Violation(where=request.at_value(option), message=message, hint=hint)


def _is_array(text: str) -> bool:
    """Whether Slurm takes it: it passes over empty items, and reads a missing end as 0."""
    text = re.sub(r"%-?\d*$", "", text)
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    items = [_RANGE.fullmatch(item) for item in text.split(",") if item]
    return bool(items) and all(
        item is not None and (item[2] is None or int(item[1]) <= int(item[2] or 0)) for item in items
    )


@requests.rule("SLM040", ERROR, "submit", slurm("common/slurm_opt.c:1565, 2445, 3286 and 4910"))
def named_values_exist(request: Request) -> Violations:
    """An option with a fixed set of values has one of them.

    Prevents: sbatch: error: Invalid --exclusive specification.
    Fix: Take one of the values that the option has.
    """
    for option, text in known_values(request, *_CHOICES):
        if option.name == "--hint" and request.options.get("--hint") is not option:
            continue  # Slurm reads the last one only
        choices = _CHOICES[option.name]
        if text and text.lower() not in choices:
            hint = f"write {option.name} alone" if option.name == "--exclusive" else listed(choices[:4])
            message = f"{request.said(option)}: {show(text)} is no value of {option.name}"
            plain = option.name == "--exclusive" and text.lower() in ("yes", "true", "on", "1")
            edits = request.mend(option.written, "--exclusive") if plain else ()
            yield Violation(where=request.at_value(option), message=message, hint=hint, edits=edits)
    for option, text in known_values(request, "--open-mode"):
        if text[:1].lower() not in ("a", "t"):
            message = f"{request.said(option)}: {show(text)} is no value of --open-mode"
            yield Violation(where=request.at_value(option), message=message, hint="append or truncate")
