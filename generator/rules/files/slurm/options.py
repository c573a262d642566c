"""Values of Slurm's options in the forms that Slurm takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....documents.shell.launch_line import Option
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....job.wording import show
from ...sources import slurm, slurm_manual
from . import values
from .requests import Request, requests

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
_MEMORIES: Final = ("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp")
_UNITS_OF_TIME: Final = re.compile(
    r"\s*(\d{1,6})\s*(d|day|days|h|hr|hrs|hour|hours|m|min|mins|minutes|s|sec|seconds)\s*", re.IGNORECASE
)
_SECONDS_IN: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: Up to it, and from two days on, the first of two numbers is more likely meant as hours than as minutes.
_HOURS_OF_A_DAY: Final = 24


def known_values(request: Request, *names: str, last: bool = False) -> Iterator[tuple[Option, str]]:
    """The values that are as sbatch gets them; variables in #SBATCH lines have a rule of their own.

    With `last`, an option that is given again later is left out: Slurm reads some values only when all are there.
    """
    for option, text in request.values(*names):
        if "$" not in text and "`" not in text and not (last and request.options.get(option.name) is not option):
            yield option, text


@requests.rule("SLM010", ERROR, "submit", slurm("common/parse_time.c:93, _is_valid_timespec"))
def time_limit_is_read(request: Request) -> Violations:
    """A time limit is M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Prevents: sbatch: error: Invalid --time specification.
    Fix: Write D-HH:MM:SS.
    """
    for option, text in known_values(request, "--time", "--time-min"):
        if values.seconds(text) is not None:
            continue
        meant = _time_meant(text)
        message = f"{request.said(option)}: {show(text)} is no time that Slurm reads"
        hint = f"write {option.name}={meant}" if meant else f"such as {option.name}=1-00:00:00, days first"
        edits = request.mend(option.values[0], meant) if meant else ()
        yield Violation(where=request.at_value(option), message=message, hint=hint, edits=edits)


def _time_meant(text: str) -> str | None:
    """What a time like `24h` or `1:00:00:00` stands for, as Slurm reads it."""
    match = _UNITS_OF_TIME.fullmatch(text)
    if match:
        return values.clock(int(match[1]) * _SECONDS_IN[match[2][0].lower()])
    parts = [part for part in re.split(r"[:\-]", text) if part]
    if len(parts) == 4 and all(part.isascii() and part.isdigit() for part in parts):
        return f"{parts[0]}-{':'.join(parts[1:])}"
    return None


@requests.rule("SLM036", WARNING, "silent", slurm("common/parse_time.c:712, time_str2secs"))
def time_limit_means_hours(request: Request) -> Violations:
    """A time limit is as long as it looks: two numbers are minutes and seconds, and 60 minutes are an hour.

    Prevents: `--time=24:00` is 24 minutes: the job is killed long before its end.
    Fix: Write D-HH:MM:SS.
    """
    for option, text in known_values(request, "--time", "--time-min"):
        duration = values.seconds(text)
        if duration is None or duration in (0, float("inf")):
            continue
        days, first, second, third = values.time_fields(text)
        meaning = values.clock(duration)
        if days is None and second is not None and third is None:
            if (first or 0) <= _HOURS_OF_A_DAY or (first or 0) >= 2 * _HOURS_OF_A_DAY:
                message = f"{request.said(option)} is minutes:seconds: a limit of {meaning}"
                hint = f"write {option.name}={first}:{second:02}:00 if hours and minutes are meant, else {meaning}"
                yield Violation(where=request.at_value(option), message=message, hint=hint)
        elif _out_of_range(days, first, second, third):
            over = "more than 59 minutes or seconds, or 23 hours after days"
            message = f"{request.said(option)} has {over}: it is {meaning}"
            yield Violation(where=request.at_value(option), message=message, hint=f"write {option.name}={meaning}")


def _out_of_range(days: int | None, first: int | None, second: int | None, third: int | None) -> bool:
    return (second or 0) > 59 or (third or 0) > 59 or (days is not None and (first or 0) > 23)


@requests.rule("SLM025", ERROR, "submit", slurm("common/proc_args.c:411, str_to_mbytes"))
def memory_is_read(request: Request) -> Violations:
    """Memory is a whole number with K, M, G or T.

    Prevents: sbatch: error: Invalid --mem specification.
    Fix: Write a whole number with K, M, G or T.
    """
    for option, text in known_values(request, *_MEMORIES):
        if values.mebibytes(text) is not None:
            continue
        name, meant = option.name, _memory_meant(text)
        message = f"{request.said(option)}: {show(text)} is no amount of memory that Slurm reads"
        hint = f"write {name}={meant}" if meant else f"a whole number with a unit, such as {name}=64G"
        edits = request.mend(option.values[0], meant) if meant else ()
        yield Violation(where=request.at_value(option), message=message, hint=hint, edits=edits)


def _memory_meant(text: str) -> str | None:
    """What an amount like `64GiB` or `1.5T` stands for, as Slurm reads it."""
    match = re.fullmatch(r"(\d{1,9})(?:\.(\d{1,3}))?([kmgtp])(?:i?bs?|i)?", text, re.IGNORECASE)
    if match is None:
        return None
    unit = match[3].upper()
    smaller = {"P": "T", "T": "G", "G": "M", "M": "K"}.get(unit)
    if smaller is not None and (match[2] or unit == "P"):
        return f"{int(float(f'{match[1]}.{match[2] or 0}') * 1024)}{smaller}"
    if match[2]:
        return None
    return f"{match[1]}{unit}"


@requests.rule("SLM028", ERROR, "submit", slurm("common/proc_args.c:496, verify_node_count"))
def nodes_are_counted(request: Request) -> Violations:
    """--nodes is a number, or a range from few to many.

    Prevents: sbatch: error: is not a valid node count; Maximum node count is less than minimum node count.
    Fix: Write one number, or a range from few to many.
    """
    for option, text in known_values(request, "--nodes"):
        span = values.node_range(text)
        if span is None:
            first, dash, last = text.partition("-")
            turned = f"--nodes={last}-{first}" if dash and first.isdigit() and last.isdigit() else "such as --nodes=4"
            message = f"{request.said(option)}: {show(text)} is no number of nodes, nor a range"
            yield Violation(where=request.at_value(option), message=message, hint=turned)
        elif span[0] == 0 and request.program == "sbatch":
            message = f"{request.said(option)} asks for no node at all"
            hint = "give the number of nodes"
            yield Violation(where=request.at_value(option), message=message, hint=hint, severity=Severity.WARNING)


@requests.rule("SLM037", WARNING, "silent", slurm_manual("sbatch(1), --nodes: a range lets Slurm choose"))
def node_count_is_fixed(request: Request) -> Violations:
    """A training job asks for one number of nodes: its batch and its layout are made for one.

    Prevents: A job that starts with fewer nodes than its batch size and its layout are made for.
    Fix: Write one number.
    """
    for option, text in known_values(request, "--nodes"):
        span = values.node_range(text)
        if span is not None and span[0] != span[1] and request.block is not None and request.block.launches:
            message = f"{request.said(option)}: the job starts on any number of nodes from {span[0]} to {span[1]}"
            hint = f"--nodes={span[1]}, or read $SLURM_JOB_NUM_NODES wherever the number counts"
            yield Violation(where=request.at_value(option), message=message, hint=hint)


@requests.rule("SLM029", ERROR, "submit", slurm("common/gres.c, _get_next_job_gres"))
def gres_is_read(request: Request) -> Violations:
    """--gres is NAME[:TYPE][:COUNT], and GPUs are called gpu.

    Prevents: sbatch: error: Invalid generic resource (gres) specification.
    Fix: Write --gres=gpu:8, or --gpus-per-node=8.
    """
    for option, text in known_values(request, "--gres", last=True):
        items = values.gres_list(text)
        digits = re.findall(r"\d+", text)
        better = f"--gres=gpu:{digits[-1]}" if digits else "--gres=gpu:8"
        if items is None or text == "":
            typed = re.fullmatch(r"gpu:(\d+):([A-Za-z]\w*)", text)
            better = f"--gres=gpu:{typed[2]}:{typed[1]}" if typed else better
            message = f"{request.said(option)}: {show(text)} is not NAME:COUNT or NAME:TYPE:COUNT"
            yield Violation(where=request.at_value(option), message=message, hint=f"write {better}")
            continue
        for item in items:
            if item.name != "gpu" and item.name.lower() in ("gpus", "gpu", "gres/gpu", "cuda", "gpgpu"):
                message = f"{request.said(option)}: the resource is called gpu, not {item.name}"
                edits = request.mend(option.values[0], text.replace(item.name, "gpu", 1)) if len(items) == 1 else ()
                yield Violation(where=request.at_value(option), message=message, hint=f"write {better}", edits=edits)


@requests.rule(
    "SLM034", ERROR, "submit", slurm("common/proc_args.c, parse_int; common/slurm_opt.c, arg_set_gpus_per_node")
)
def counts_are_positive(request: Request) -> Violations:
    """Numbers of tasks, cores and GPUs are positive whole numbers.

    Prevents: sbatch: error: Invalid numeric value "0" for --ntasks-per-node.
    Fix: Write a positive whole number.
    """
    for option, text in known_values(request, *_COUNTS):
        number = values.number(text)
        if number is None or number == 0:
            message = f"{request.said(option)}: {show(text)} is no positive whole number"
            yield Violation(where=request.at_value(option), message=message, hint=f"such as {option.name}=8")
    for option, text in known_values(request, *_GPU_COUNTS, last=True):
        found = values.gpus(text)
        if found is None:
            message = f"{request.said(option)}: {show(text)} is neither a number of GPUs nor TYPE:NUMBER"
            yield Violation(where=request.at_value(option), message=message, hint=f"such as {option.name}=8")
        elif found[0] in ("gpu", "gpus", "gres"):
            message = f"{request.said(option)} asks for GPUs of a type called {found[0]}"
            hint = f"write {option.name}={found[1]}, or --gres=gpu:{found[1]}"
            yield Violation(where=request.at_value(option), message=message, hint=hint)
