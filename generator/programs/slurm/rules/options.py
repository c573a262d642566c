"""Values of Slurm's options in the forms that Slurm reads."""

from __future__ import annotations

import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....job.wording import show
from ....rules.sources import slurm, slurm_manual
from ....rules.violations import note_if_to_fill
from ....units import clock
from ...subjects import requests
from .. import values as slurm_values
from ..request import Request

_COUNTS: Final = (
    *("--cores-per-socket", "--cpus-per-gpu", "--cpus-per-task", "--mincpus", "--ntasks", "--ntasks-per-core"),
    *("--ntasks-per-gpu", "--ntasks-per-node", "--ntasks-per-socket", "--sockets-per-node", "--threads-per-core"),
)
_GPU_COUNTS: Final = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")
_UNITS_OF_TIME: Final = re.compile(
    r"\s*(\d{1,6})\s*(d|day|days|h|hr|hrs|hour|hours|m|min|mins|minutes|s|sec|seconds)\s*", re.IGNORECASE
)
_SECONDS_IN: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: Up to it, and from two days on, the first of two numbers is more likely meant as hours than as minutes.
_HOURS_OF_A_DAY: Final = 24


@requests.rule("SLM010", ERROR, "submit", slurm("common/parse_time.c:93, _is_valid_timespec"))
def time_limit_is_read(request: Request) -> Violations:
    """A time limit is M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Prevents: sbatch: error: Invalid --time specification.
    Fix: write D-HH:MM:SS"""
    for limit in request.texts("--time", "--time-min"):
        if slurm_values.seconds(limit.value) is None:
            meant = _time_meant(limit.value)
            message = f"{limit}: {show(limit.value)} is not a time that Slurm reads"
            hint = f"write {limit.name}={meant or '1-00:00:00, days first'}"
            edits = request.edit(limit.option.values[0], meant)
            yield limit.bad_value(message, hint, severity=note_if_to_fill(limit.value, limit.name), edits=edits)


def _time_meant(text: str) -> str | None:
    """What a time like `24h` or `1:00:00:00` stands for, as Slurm reads it."""
    match = _UNITS_OF_TIME.fullmatch(text)
    if match:
        return clock(int(match[1]) * _SECONDS_IN[match[2][0].lower()])
    parts = [part for part in re.split(r"[:\-]", text) if part]
    if len(parts) == 4 and all(part.isascii() and part.isdigit() for part in parts):
        return f"{parts[0]}-{':'.join(parts[1:])}"
    return None


@requests.rule("SLM036", WARNING, "silent", slurm("common/parse_time.c:712, time_str2secs"))
def time_limit_means_hours(request: Request) -> Violations:
    """A time limit is as long as it looks: two numbers are minutes and seconds, and 60 minutes are an hour.

    Prevents: `--time=24:00` is 24 minutes: the job is killed long before its end. A note where minutes may be meant.
    Fix: write D-HH:MM:SS"""
    for limit in request.texts("--time", "--time-min"):
        duration = slurm_values.seconds(limit.value)
        if duration is None or duration in (0, float("inf")):
            continue
        days, first, second, third = slurm_values.time_fields(limit.value)
        meaning = clock(duration)
        if days is None and second is not None and third is None:
            if (first or 0) <= _HOURS_OF_A_DAY or (first or 0) >= 2 * _HOURS_OF_A_DAY:
                hint = f"write {limit.name}={first}:{second:02}:00 if hours and minutes are meant, else {meaning}"
                whole = (first or 0) % _HOURS_OF_A_DAY == 0 or (first or 0) >= 2 * _HOURS_OF_A_DAY
                message = f"{limit} is minutes:seconds: a limit of {meaning}"
                yield limit.bad_value(message, hint, severity=WARNING if whole else NOTE)
        elif (second or 0) > 59 or (third or 0) > 59 or (days is not None and (first or 0) > 23):
            message = f"{limit} has more than 59 minutes or seconds, or 23 hours after days: it is {meaning}"
            yield limit.bad_value(message, f"write {limit.name}={meaning}")


@requests.rule("SLM025", ERROR, "submit", slurm("common/proc_args.c:411, str_to_mbytes"))
def memory_is_read(request: Request) -> Violations:
    """Memory is an integer with K, M, G or T.

    Prevents: sbatch: error: Invalid --mem specification.
    Fix: write an integer with K, M, G or T"""
    for memory in request.texts("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp"):
        if slurm_values.mebibytes(memory.value) is None:
            meant = _memory_meant(memory.value)
            message = f"{memory}: {show(memory.value)} is not an amount of memory that Slurm reads"
            hint = f"write {memory.name}={meant}" if meant else f"write an integer with a unit: {memory.name}=64G"
            edits = request.edit(memory.option.values[0], meant)
            yield memory.bad_value(message, hint, severity=note_if_to_fill(memory.value, memory.name), edits=edits)


def _memory_meant(text: str) -> str | None:
    """What an amount like `64GiB` or `1.5T` stands for, as Slurm reads it."""
    match = re.fullmatch(r"(\d{1,9})(?:\.(\d{1,3}))?([kmgtp])(?:i?bs?|i)?", text, re.IGNORECASE)
    if match is None:
        return None
    unit = match[3].upper()
    smaller = {"P": "T", "T": "G", "G": "M", "M": "K"}.get(unit)
    if smaller is not None and (match[2] or unit == "P"):
        return f"{int(float(f'{match[1]}.{match[2] or 0}') * 1024)}{smaller}"
    return None if match[2] else f"{match[1]}{unit}"


@requests.rule("SLM028", ERROR, "submit", slurm("common/proc_args.c:496, verify_node_count"))
def nodes_are_counted(request: Request) -> Violations:
    """--nodes is a number, or a range from few to many.

    Prevents: sbatch: error: is not a valid node count; Maximum node count is less than minimum node count.
    Fix: write one number, or a range from few to many"""
    for nodes in request.texts("--nodes"):
        span = slurm_values.node_range(nodes.value)
        if span is None:
            first, dash, last = nodes.value.partition("-")
            turned = f"{last}-{first}" if dash and first.isdigit() and last.isdigit() else "4, or a range such as 2-4"
            message = f"{nodes}: {show(nodes.value)} is neither a number of nodes nor a range"
            yield nodes.bad_value(message, f"write --nodes={turned}")
        elif span[0] == 0 and request.program == "sbatch":
            message, hint = f"{nodes} asks for no node at all", "give the number of nodes"
            yield nodes.bad_value(message, hint, severity=WARNING)


@requests.rule("SLM037", WARNING, "silent", slurm_manual("sbatch(1), --nodes: a range lets Slurm choose"))
def node_count_is_fixed(request: Request) -> Violations:
    """A training job asks for a fixed number of nodes, as its batch and its layout are made for one.

    Prevents: A job that starts with fewer nodes than its batch size and its layout are made for.
    Fix: write one number"""
    for nodes in request.texts("--nodes") if request.launches else ():
        span = slurm_values.node_range(nodes.value)
        if span is not None and span[0] != span[1]:
            hint = f"write --nodes={span[1]}, or read $SLURM_JOB_NUM_NODES wherever the number counts"
            yield nodes.bad_value(f"{nodes}: the job starts on any number of nodes from {span[0]} to {span[1]}", hint)


@requests.rule("SLM029", ERROR, "submit", slurm("common/gres.c, _get_next_job_gres"))
def gres_is_read(request: Request) -> Violations:
    """--gres is NAME[:TYPE][:COUNT], and GPUs are called gpu.

    Prevents: sbatch: error: Invalid generic resource (gres) specification.
    Fix: write --gres=gpu:8, or --gpus-per-node=8"""
    for gres in request.texts("--gres", last=True):
        items, text = slurm_values.gres_list(gres.value), gres.value
        digits = re.findall(r"\d+", text)
        better = f"write --gres=gpu:{digits[-1]}" if digits else "write --gres=gpu:8"
        if items is None or text == "":
            typed = re.fullmatch(r"gpu:(\d+):([A-Za-z]\w*)", text)
            better = f"write --gres=gpu:{typed[2]}:{typed[1]}" if typed else better
            yield gres.bad_value(f"{gres}: {show(text)} is not NAME:COUNT or NAME:TYPE:COUNT", better)
        for item in items or ():
            if item.name != "gpu" and item.name.lower() in ("gpus", "gpu", "gres/gpu", "cuda", "gpgpu"):
                message = f"{gres}: the resource is called gpu, not {item.name}"
                right = text.replace(item.name, "gpu", 1) if len(items or ()) == 1 else None
                yield gres.bad_value(message, better, edits=request.edit(gres.option.values[0], right))


@requests.rule("SLM034", ERROR, "submit", slurm("common/proc_args.c, parse_int; slurm_opt.c, arg_set_gpus_per_node"))
def counts_are_positive(request: Request) -> Violations:
    """Numbers of tasks, cores and GPUs are positive integers.

    Prevents: sbatch: error: Invalid numeric value "0" for --ntasks-per-node.
    Fix: write a positive integer"""
    for count in request.texts(*_COUNTS):
        if not slurm_values.number(count.value):
            message = f"{count}: {show(count.value)} is not a positive integer"
            less = note_if_to_fill(count.value, count.name)
            yield count.bad_value(message, f"write a number, such as {count.name}=8", severity=less)
    for count in request.texts(*_GPU_COUNTS, last=True):
        found = slurm_values.gpus(count.value)
        if found is None:
            message = f"{count}: {show(count.value)} is neither a number of GPUs nor TYPE:NUMBER"
            less = note_if_to_fill(count.value, count.name)
            yield count.bad_value(message, f"write a number, such as {count.name}=8", severity=less)
        elif found[0] in ("gpu", "gpus", "gres"):
            message = f"{count} asks for GPUs of a type called {found[0]}"
            yield count.bad_value(message, f"write {count.name}={found[1]}, or --gres=gpu:{found[1]}")
