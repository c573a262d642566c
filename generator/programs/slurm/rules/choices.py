"""Slurm's options with a form or a set of values of their own: signals, mail, arrays, modes."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.loader import closest
from ....findings import ERROR, WARNING, Violations
from ....job.wording import show
from ....rules.numbers import listed
from ....rules.sources import slurm, slurm_manual
from ...subjects import requests
from ..request import Request
from ..values import MOST_SIGNAL_SECONDS, SIGNALS, signal_of

_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{0,9})(?::\d+)?)?", re.ASCII)
_MAIL_TYPES: Final = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT"),
    *("TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)
#: Options with a fixed set of values, compared without case.
_CHOICES: Final = {
    "--exclusive": ("user", "mcs", "exclusive", "oversubscribe", "topo"),  # topo: since 23.11
    "--kill-on-invalid-dep": ("yes", "no"),
    "--wait-all-nodes": ("0", "1"),
    "--hint": ("compute_bound", "memory_bound", "multithread", "nomultithread", "help"),
}
#: Options whose values have a form: examples, and what they look like. Sources: sbatch(1) of Slurm 22.05.8.
_FORMS: Final = {
    "--dependency": (
        "afterok:JOBID or singleton",
        r"(?:(?:after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand):\S*\d\S*|singleton|\$.*)"
        r"(?:[,?](?:[a-z]+:\S+|singleton))*",
    ),
    "--distribution": (
        "block, cyclic or plane=8",
        r"plane(?:=\d+)?|(?:block|cyclic|arbitrary|\*)(?::(?:block|cyclic|fcyclic|\*)){0,2}(?:,(?:no)?pack)?",
    ),
    "--gpu-bind": (
        "closest, none or single:1",
        r"(?:v(?:erbose)?,)?(?:[cn]\w*|single:\S*|(?:map_gpu|mask_gpu|per_task):\S+)",
    ),
    "--profile": ("task", r"(?:all|none|(?:energy|lustre|network|task)(?:,(?:energy|lustre|network|task))*)"),
    "--switches": ("1 or 1@24:00:00", r"\d+(?:@[\d:-]+)?"),
}
_MANUAL: Final = slurm_manual("sbatch(1), --dependency, --distribution, --gpu-bind, --profile, --switches")


@requests.rule("SLM056", ERROR, "submit", _MANUAL)
def values_have_their_form(request: Request) -> Violations:
    """Dependencies, distributions, GPU binding, profiles and switches have the forms that Slurm reads.

    Prevents: sbatch: error: Invalid --distribution specification; Job dependency problem.
    Fix: write it in the form of the manual page"""
    for found in request.texts(*_FORMS):
        if found.name == "--dependency" and request.options.get("--dependency") is not found.option:
            continue  # Slurm reads the last one only
        example, form = _FORMS[found.name]
        if re.fullmatch(form, found.value.lower()) is None:
            message = f"{found}: {show(found.value)} doesn't have the form of {found.name}"
            yield found.bad_value(message, f"write a value such as {example}")


@requests.rule("SLM041", ERROR, "submit", slurm("common/proc_args.c:1096, get_signal_opts"))
def signal_is_read(request: Request) -> Violations:
    """--signal is [B:]SIGNAL[@SECONDS] with at most 65535 seconds.

    Prevents: sbatch: error: Invalid --signal specification.
    Fix: write B:USR1@300: signal USR1 to the batch shell 300 seconds before the limit"""
    for signal in request.texts("--signal"):
        if signal_of(signal.value) is None and request.program == "sbatch":
            message = f"{signal}: {show(signal.value)} is not [B:]SIGNAL[@SECONDS]"
            yield signal.bad_value(message, _signal_hint(signal.value))


def _signal_hint(text: str) -> str:
    match = re.search(r"[@:](\d{1,6})([smh]?)$", text)
    seconds = int(match[1]) * {"m": 60, "h": 3_600}.get(match[2], 1) if match else 300
    name = next((signal for signal in SIGNALS if signal in text.upper()), "USR1")
    seconds = min(seconds, MOST_SIGNAL_SECONDS)
    return f"write --signal={'B:' if text[:2].upper() == 'B:' else ''}{name}@{seconds}"


@requests.rule("SLM038", ERROR, "submit", slurm("common/proc_args.c:805, parse_mail_type: skips unknown ones"))
def mail_types_exist(request: Request) -> Violations:
    """Every --mail-type is one that Slurm sends mail for.

    Prevents: sbatch: error: Invalid --mail-type specification; or no mail when the job fails.
    Fix: name types that exist, separated by commas"""
    for found in request.texts("--mail-type"):
        types = [word for word in found.value.split(",") if word]
        wrong = [word for word in types if word.upper() not in _MAIL_TYPES]
        if types and not wrong:
            continue
        near = closest(wrong[0], [name.lower() for name in _MAIL_TYPES]) if wrong else None
        refused = len(wrong) == len(types)
        what = f"{wrong[0]} is not a mail type" if wrong else "no mail type"
        message = f"{found}: {what}; sbatch {'refuses it' if refused else 'ignores it silently'}"
        hint = f"did you mean {near.upper()}?" if near else f"write {listed(_MAIL_TYPES[:6])}"
        yield found.bad_value(message, hint, severity=ERROR if refused else WARNING)


@requests.rule("SLM039", ERROR, "submit", slurm_manual("sbatch(1), --array"))
def array_is_read(request: Request) -> Violations:
    """--array is numbers and ranges, such as 0-3 or 1,4,7 or 0-15%4.

    Prevents: Invalid job array specification.
    Fix: write numbers and ranges: 0-3, 1,4,7 or 0-15%4"""
    for array in request.texts("--array", last=True):
        if array.value == "" or _is_array(array.value):
            continue
        pair = sorted(map(int, re.findall(r"\d{1,9}", array.value)[:2]))
        hint = f"write --array={pair[0]}-{pair[1]}" if len(pair) == 2 else "write job numbers, such as --array=0-3"
        yield array.bad_value(f"{array}: {show(array.value)} is not a list of job numbers", hint)


def _is_array(text: str) -> bool:
    """Whether Slurm accepts it: it skips empty items, and reads a missing end as 0."""
    text = re.sub(r"%-?\d*$", "", text)
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    items = [_RANGE.fullmatch(item) for item in text.split(",") if item]
    return bool(items) and all(item and (item[2] is None or int(item[1]) <= int(item[2] or 0)) for item in items)


@requests.rule("SLM040", ERROR, "submit", slurm("common/slurm_opt.c:1565, 2445, 3286 and 4910"))
def named_values_exist(request: Request) -> Violations:
    """An option with a fixed set of values has one of them.

    Prevents: sbatch: error: Invalid --exclusive specification.
    Fix: use one of the values that the option has"""
    for found in request.texts(*_CHOICES):
        if found.name == "--hint" and request.options.get("--hint") is not found.option:
            continue  # Slurm reads the last one only
        text, choices = found.value.lower(), _CHOICES[found.name]
        if text and text not in choices:
            alone = found.name == "--exclusive"
            hint = "write --exclusive alone" if alone else f"write {listed(choices[:4])}"
            message = f"{found}: {show(found.value)} is not a value of {found.name}"
            meant = "--exclusive" if alone and text in ("yes", "true", "on", "1") else None
            yield found.bad_value(message, hint, edits=request.edit(found.option.written, meant))
    for found in request.texts("--open-mode"):
        if found.value[:1].lower() not in ("a", "t"):
            message = f"{found}: {show(found.value)} is not a value of --open-mode"
            yield found.bad_value(message, "write append or truncate")
