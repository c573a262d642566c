"""Values of Slurm's options in the forms that Slurm reads."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Edit, Violation, Violations
from ....job.quantities import time_fields
from ....numerals import is_whole, python_float, whole
from ....patterns import lazy_pattern
from ....rules.violations import listed, note_if_to_fill, slurm, slurm_manual
from ....text.options import Argument
from ....text.wording import show
from ....units import clock
from .. import values as slurm_values
from ..request import Request
from ..subjects import requests
from ..values import MOST_SIGNAL_SECONDS, SIGNALS, signal_of

_COUNTS: Final = (
    "--cores-per-socket",
    "--cpus-per-gpu",
    "--cpus-per-task",
    "--mincpus",
    "--ntasks",
    "--ntasks-per-core",
    "--ntasks-per-gpu",
    "--ntasks-per-node",
    "--ntasks-per-socket",
    "--sockets-per-node",
    "--threads-per-core",
)
_GPU_COUNTS: Final = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
#: A time with a unit, which Slurm doesn't read: `24h`, `30 minutes`.
_UNITS_OF_TIME: Final = lazy_pattern(
    r"\s*([0-9]{1,6})\s*(d|day|days|h|hr|hrs|hour|hours|m|min|mins|minutes|s|sec|seconds)\s*",
    re.IGNORECASE,
)
_SECONDS_IN: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: The first of two numbers is more likely meant as hours than as minutes up to one day of hours,
#: and from two days on.
_HOURS_OF_A_DAY: Final = 24
#: Of 31 days. A larger number of minutes is no slip: hardly a queue has jobs of that many hours.
_HOURS_OF_A_MONTH: Final = 744


@requests.rule("SLM010", ERROR, "submit", slurm("common/parse_time.c:93, _is_valid_timespec"))
def time_limit_is_read(request: Request) -> Violations:
    """A time limit is M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.
    Prevents: sbatch: error: Invalid --time specification.
    Fix: write D-HH:MM:SS"""
    for limit in request.texts("--time", "--time-min"):
        if slurm_values.seconds(limit.value) is None:
            meant = _time_meant(limit.value)
            hint = f"write {limit.name}={meant or '1-00:00:00, days first'}"
            edits = request.edit(limit.option.values[0], meant)
            yield _unread(limit, "is not a time that Slurm reads", hint, edits)


def _unread(
    argument: Argument[str], fault: str, hint: str, edits: tuple[Edit, ...] = ()
) -> Violation:
    """A violation of a value that Slurm can't read; a note where the reader is to write another."""
    severity = note_if_to_fill(argument.value, argument.name)
    message = f"{argument}: {show(argument.value)} {fault}"
    return argument.bad_value(message, hint, severity=severity, edits=edits)


def _time_meant(text: str) -> str | None:
    """Return what a time like `24h` or `1:00:00:00` stands for, as Slurm reads it."""
    match = _UNITS_OF_TIME.fullmatch(text)
    if match:
        number, unit = match.groups()
        return clock(whole(number) * _SECONDS_IN[unit[0].lower()])
    parts = [part for part in re.split(r"[:\-]", text) if part]
    if len(parts) == 4 and all(is_whole(part) for part in parts):
        return f"{parts[0]}-{':'.join(parts[1:])}"
    return None


@requests.rule("SLM036", WARNING, "silent", slurm("common/parse_time.c:712, time_str2secs"))
def time_limit_means_hours(request: Request) -> Violations:
    """A time limit is as long as it looks: two numbers are minutes and seconds, and 60 minutes are
    an hour.
    Prevents: `--time=24:00` is 24 minutes: the job is killed long before its end. A note where
    minutes may be meant.
    Fix: write D-HH:MM:SS
    """
    for limit in request.texts("--time", "--time-min"):
        duration = slurm_values.seconds(limit.value)
        if duration is None or duration in (0, math.inf):
            continue
        days, hours, second, third = time_fields(limit.value)
        first, meaning = hours or 0, clock(duration)
        if days is None and second is not None and third is None:
            if first <= _HOURS_OF_A_DAY or first >= 2 * _HOURS_OF_A_DAY:
                hint = (
                    f"write {limit.name}={hours}:{second:02}:00 if hours and minutes are "
                    f"meant, else {meaning}"
                )
                are_whole_days = first in range(0, _HOURS_OF_A_MONTH, _HOURS_OF_A_DAY)
                message = f"{limit} is minutes:seconds: a limit of {meaning}"
                yield limit.bad_value(message, hint, severity=WARNING if are_whole_days else NOTE)
        elif (second or 0) > 59 or (third or 0) > 59 or (days is not None and first > 23):
            message = (
                f"{limit} has more than 59 minutes or seconds, or 23 hours after "
                f"days: it is {meaning}"
            )
            yield limit.bad_value(message, f"write {limit.name}={meaning}", severity=NOTE)


#: Options whose value is an amount of memory, or of space on a disk.
MEMORY: Final = ("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp")


@requests.rule("SLM025", ERROR, "submit", slurm("common/proc_args.c:411, str_to_mbytes"))
def memory_is_read(request: Request) -> Violations:
    """Memory is an integer with K, M, G or T.
    Prevents: sbatch: error: Invalid --mem specification.
    Fix: write an integer with K, M, G or T"""
    for memory in request.texts(*MEMORY):
        if slurm_values.mebibytes(memory.value) is None:
            meant = memory_meant(memory.value)
            hint = (
                f"write {memory.name}={meant}"
                if meant
                else f"write an integer with a unit: {memory.name}=64G"
            )
            edits = request.edit(memory.option.values[0], meant)
            yield _unread(memory, "is not an amount of memory that Slurm reads", hint, edits)


def memory_meant(text: str) -> str | None:
    """Return what an amount like `64GiB` or `1.5T` stands for, as Slurm reads it."""
    match = re.fullmatch(
        r"([0-9]{1,9})(?:\.([0-9]{1,3}))?([kmgtp])(?:i?bs?|i)?", text, re.IGNORECASE
    )
    if match is None:
        return None
    digits, fraction, unit = match.groups()
    unit, units = unit.upper(), "KMGTP"
    # Slurm has no P, and reads no fractions: both need the next smaller unit.
    if unit == "P" or (fraction and unit != "K"):
        smaller_unit = units[units.index(unit) - 1]
        amount = python_float(f"{digits}.{fraction or 0}") or 0
        return f"{int(amount * 1024)}{smaller_unit}"
    return None if fraction else f"{digits}{unit}"


@requests.rule("SLM028", ERROR, "submit", slurm("common/proc_args.c:496, verify_node_count"))
def nodes_are_counted(request: Request) -> Violations:
    """--nodes is a number, or a range from few to many.
    Prevents: sbatch: error: is not a valid node count; Maximum node count is less than minimum node
    count.
    Fix: write one number, or a range from few to many
    """
    for nodes in request.texts("--nodes"):
        span = slurm_values.node_range(nodes.value)
        if span is None:
            first, dash, last = nodes.value.partition("-")
            instead = "4, or a range such as 2-4"
            if dash and is_whole(first) and is_whole(last):
                instead = f"{last}-{first}"  # from many to few
            fault = "is neither a number of nodes nor a range"
            yield _unread(nodes, fault, f"write --nodes={instead}")
            continue
        least, _ = span
        is_final = request.program == "sbatch" and "--nodes" not in request.given_when_submitted
        if least == 0 and is_final:
            message = f"{nodes} asks for no node at all"
            yield nodes.bad_value(message, "give the number of nodes", severity=WARNING)


@requests.rule(
    "SLM037", NOTE, "silent", slurm_manual("sbatch(1), --nodes: a range lets Slurm choose")
)
def node_count_is_fixed(request: Request) -> Violations:
    """A training job asks for a fixed number of nodes, as its batch and its layout are made for
    one.
    Prevents: A job that starts with fewer nodes than its batch size and its layout are made for.
    Fix: write one number
    """
    if not request.launches:
        return
    for nodes in request.texts("--nodes"):
        least, most = slurm_values.node_range(nodes.value) or (None, None)
        if least != most:
            message = f"{nodes}: the job starts on any number of nodes from {least} to {most}"
            hint = f"write --nodes={most}, or read $SLURM_JOB_NUM_NODES wherever the number counts"
            yield nodes.bad_value(message, hint)


@requests.rule("SLM029", ERROR, "submit", slurm("common/gres.c, _get_next_job_gres"))
def gres_is_read(request: Request) -> Violations:
    """--gres is NAME[:TYPE][:COUNT], and GPUs are called gpu.
    Prevents: sbatch: error: Invalid generic resource (gres) specification.
    Fix: write --gres=gpu:8, or --gpus-per-node=8"""
    for gres in request.texts("--gres", last=True):
        items, text = slurm_values.gres_list(gres.value), gres.value
        numbers = re.findall(r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])", text)
        hint = f"write --gres=gpu:{numbers[-1] if numbers else 8}"
        if items is None or text == "":
            turned = re.fullmatch(r"gpu:([0-9]+):([A-Za-z]\w*)", text)
            if turned:
                count, kind = turned.groups()
                hint = f"write --gres=gpu:{kind}:{count}"
            yield gres.bad_value(f"{gres}: {show(text)} is not NAME:COUNT or NAME:TYPE:COUNT", hint)
        for item in items or ():
            if item.name != "gpu" and item.name.lower() in _NAMES_OF_GPUS:
                message = f"{gres}: the resource is called gpu, not {item.name}"
                # Of several items the wrong one isn't found by its name alone.
                right = text.replace(item.name, "gpu", 1) if len(items or ()) == 1 else None
                edits = request.edit(gres.option.values[0], right)
                yield gres.bad_value(message, hint, edits=edits)


@requests.rule(
    "SLM034",
    ERROR,
    "submit",
    slurm("common/proc_args.c, parse_int; slurm_opt.c, arg_set_gpus_per_node"),
)
def counts_are_positive(request: Request) -> Violations:
    """Numbers of tasks, cores and GPUs are positive integers.
    Prevents: sbatch: error: Invalid numeric value "0" for --ntasks-per-node.
    Fix: write a positive integer"""
    for option in request.texts(*_COUNTS):
        if not slurm_values.number(option.value):
            hint = f"write a number, such as {option.name}=8"
            yield _unread(option, "is not a positive integer", hint)
    for option in request.texts(*_GPU_COUNTS, last=True):
        type_and_count = slurm_values.gpu_type_and_count(option.value)
        if type_and_count is None:
            fault = "is neither a number of GPUs nor TYPE:NUMBER"
            hint = f"write a number, such as {option.name}=8"
            unread = _unread(option, fault, hint)
            # A part of a GPU is one of that type, as sites have it.
            yield replace(unread, severity=NOTE) if _SLICE.fullmatch(option.value) else unread
            continue
        kind, count = type_and_count
        if kind in ("gpu", "gpus", "gres"):
            message = f"{option} asks for GPUs of a type called {kind}"
            yield option.bad_value(message, f"write {option.name}={count}, or --gres=gpu:{count}")


#: Other names that `gpu` of --gres is given.
_NAMES_OF_GPUS: Final = ("gpus", "gpu", "gres/gpu", "cuda", "gpgpu")
_SLICE: Final = lazy_pattern(r"[0-9]+g\.[0-9]+gb")  # NVIDIA's names for parts of a GPU
#: An item of --array: `3`, `0-15`, `0-15:4`.
_RANGE: Final = lazy_pattern(r"(\d{1,9})(?:-(\d{0,9})(?::\d+)?)?", re.ASCII)
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
    "--open-mode": ("append", "truncate"),
    "--hint": ("compute_bound", "memory_bound", "multithread", "nomultithread", "help"),
}
#: Options whose values have a form: examples, and what they look like. Sources: sbatch(1) of Slurm
#: 22.05.8.
_FORMS: Final = {
    "--dependency": (
        "afterok:JOBID or singleton",
        r"(?:(?:after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand):\S*[0-9]\S*"
        r"|singleton|\$.*)"
        r"(?:[,?](?:[a-z]+:\S+|singleton))*",
    ),
    "--distribution": (
        "block, cyclic or plane=8",
        r"plane(?:=[0-9]+)?|(?:no)?pack"
        r"|(?:block|cyclic|arbitrary|\*)(?::(?:block|cyclic|fcyclic|\*)){0,2}(?:,(?:no)?pack)?",
    ),
    "--gpu-bind": (
        "closest, none or single:1",
        r"(?:v(?:erbose)?,)?(?:[cn]\w*|single:\S*|(?:map_gpu|mask_gpu|per_task):\S+)",
    ),
    "--profile": (
        "task",
        r"(?:all|none|(?:energy|lustre|network|task)(?:,(?:energy|lustre|network|task))*)",
    ),
    "--switches": ("1 or 1@24:00:00", r"[0-9]+(?:@[0-9:-]+)?"),
}
_MANUAL: Final = slurm_manual(
    "sbatch(1), --dependency, --distribution, --gpu-bind, --profile, --switches"
)


@requests.rule("SLM056", ERROR, "submit", _MANUAL)
def values_have_their_form(request: Request) -> Violations:
    """Dependencies, distributions, GPU binding, profiles and switches have the forms that Slurm
    reads.
    Prevents: sbatch: error: Invalid --distribution specification; Job dependency problem.
    Fix: write it in the form of the manual page
    """
    others = (name for name in _FORMS if name != "--dependency")
    for argument in (*request.texts("--dependency", last=True), *request.texts(*others)):
        example, form = _FORMS[argument.name]
        if re.fullmatch(form, argument.value.lower()) is None:
            message = f"{argument}: {show(argument.value)} doesn't have the form of {argument.name}"
            yield argument.bad_value(message, f"write a value such as {example}")


@requests.rule("SLM041", ERROR, "submit", slurm("common/proc_args.c:1096, get_signal_opts"))
def signal_is_read(request: Request) -> Violations:
    """--signal is [B:]SIGNAL[@SECONDS] with at most 65535 seconds.
    Prevents: sbatch: error: Invalid --signal specification.
    Fix: write B:USR1@300: signal USR1 to the batch shell 300 seconds before the limit"""
    for signal in request.texts("--signal"):
        if signal_of(signal.value) is None and request.program == "sbatch":
            message = f"{signal}: {show(signal.value)} is not [B:]SIGNAL[@SECONDS]"
            yield signal.bad_value(message, f"write --signal={_signal_meant(signal.value)}")


def _signal_meant(text: str) -> str:
    """A value of --signal that keeps what can be read of one that Slurm refuses."""
    text = text.upper()
    flag = "B:" if text.startswith("B:") else ""
    name = next((name for name in SIGNALS if name in text), "USR1")
    time = re.search(r"[@:]([0-9]{1,6})([SMH]?)$", text)
    seconds = whole(time[1]) * {"M": 60, "H": 3_600}.get(time[2], 1) if time else 300
    return f"{flag}{name}@{min(seconds, MOST_SIGNAL_SECONDS)}"


@requests.rule(
    "SLM038", ERROR, "submit", slurm("common/proc_args.c:805, parse_mail_type: skips unknown ones")
)
def mail_types_exist(request: Request) -> Violations:
    """Every --mail-type is one that Slurm sends mail for.
    Prevents: sbatch: error: Invalid --mail-type specification; or no mail when the job fails.
    Fix: name types that exist, separated by commas"""
    for text in request.texts("--mail-type"):
        types = [word for word in text.value.split(",") if word]
        unknown = [word for word in types if word.upper() not in _MAIL_TYPES]
        if types and not unknown:
            continue
        near = closest(unknown[0], [name.lower() for name in _MAIL_TYPES]) if unknown else None
        fault = f"{unknown[0]} is not a mail type" if unknown else "no mail type"
        if len(unknown) == len(types):
            effect, severity = "refuses it", ERROR
        else:
            effect, severity = "ignores it silently", WARNING
        hint = f"did you mean {near.upper()}?" if near else f"write {listed(_MAIL_TYPES[:6])}"
        yield text.bad_value(f"{text}: {fault}; sbatch {effect}", hint, severity=severity)


@requests.rule("SLM039", ERROR, "submit", slurm_manual("sbatch(1), --array"))
def array_is_read(request: Request) -> Violations:
    """--array is numbers and ranges, such as 0-3 or 1,4,7 or 0-15%4.
    Prevents: Invalid job array specification.
    Fix: write numbers and ranges: 0-3, 1,4,7 or 0-15%4"""
    for array in request.texts("--array", last=True):
        if array.value == "" or _is_array(array.value):
            continue
        numbers = sorted(map(whole, re.findall(r"[0-9]{1,9}", array.value)[:2]))
        hint = "write job numbers, such as --array=0-3"
        if len(numbers) == 2:
            first, last = numbers
            hint = f"write --array={first}-{last}"
        yield array.bad_value(f"{array}: {show(array.value)} is not a list of job numbers", hint)


def _is_array(text: str) -> bool:
    """Return whether Slurm accepts it: it skips empty items, and reads a missing end as 0."""
    without_limit = re.sub(r"%-?[0-9]*$", "", text)
    without_brackets = re.sub(r"^\[(.*)\]$", r"\1", without_limit, flags=re.DOTALL)
    items = [item for item in without_brackets.split(",") if item]
    return bool(items) and all(map(_is_range, items))


def _is_range(item: str) -> bool:
    """Return whether an item of --array is a number, or a range from few to many."""
    match = _RANGE.fullmatch(item)
    if match is None:
        return False
    first, last = match.groups()
    return last is None or whole(first) <= whole(last or "0")


@requests.rule("SLM040", ERROR, "submit", slurm("common/slurm_opt.c:1565, 2445, 3286 and 4910"))
def named_values_exist(request: Request) -> Violations:
    """An option with a fixed set of values has one of them.
    Prevents: sbatch: error: Invalid --exclusive specification.
    Fix: use one of the values that the option has"""
    others = (name for name in _CHOICES if name != "--hint")
    for argument in (*request.texts("--hint", last=True), *request.texts(*others)):
        text, choices = argument.value.lower(), _CHOICES[argument.name]
        if argument.name == "--open-mode":
            is_choice = text[:1] in ("a", "t")  # the first letter counts
        else:
            is_choice = text in ("", *choices)
        if is_choice:
            continue
        is_exclusive = argument.name == "--exclusive"
        hint = "write --exclusive alone" if is_exclusive else f"write {listed(choices[:4])}"
        message = f"{argument}: {show(argument.value)} is not a value of {argument.name}"
        is_flag = is_exclusive and text in ("yes", "true", "on", "1")
        edits = request.edit(argument.option.written, "--exclusive" if is_flag else None)
        yield argument.bad_value(message, hint, edits=edits)
