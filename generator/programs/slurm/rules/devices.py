"""GPUs that a batch script chooses by number, against those that Slurm gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ....findings import ERROR, WARNING, Location, Violation, Violations
from ....rules.sources import deepspeed_now, slurm_manual
from ...subjects import blocks
from ..request import Request

_OF_SLURM: Final = re.compile(r"[\"']?\$\{?(SLURM_JOB_GPUS|SLURM_STEP_GPUS)\}?[\"']?")
_NUMBERS: Final = re.compile(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
_LOCAL: Final = re.compile(r"(?:localhost|127\.0\.0\.1):(\d{1,3}(?:,\d{1,3})*)", re.ASCII)
_SHOWN: Final = slurm_manual("gres.conf(5), and cgroup.conf(5), ConstrainDevices: a job sees its GPUs as 0, 1, ...")
_SLOTS: Final = deepspeed_now("launcher/runner.py:307, parse_resource_filter")


@blocks.rule("SLM067", ERROR, "init", f"{_SHOWN}; {_SLOTS}")
def chosen_gpus_are_granted(request: Request) -> Violations:
    """The numbers of the GPUs that a script chooses are below the number that its node gives.

    Prevents: ValueError: No slot '4' specified on host 'localhost'. A warning for CUDA_VISIBLE_DEVICES, which finds no
    device, or the GPUs of another job where the site doesn't confine jobs to theirs.
    Fix: leave the choice to Slurm, or count from 0"""
    granted = request.gpus_per_node
    if granted is None or not granted.value or request.has("--exclusive"):
        return
    for what, numbers, where in _chosen(request):
        beyond = sorted({number for number in map(int, numbers.split(",")) if number >= granted.value})
        if beyond:
            right = ",".join(map(str, range(granted.value)))
            given = f"{granted} gives {granted.value} GPU{'s' * (granted.value > 1)}, numbered from 0"
            hint = f"leave it out, or choose from {right}"
            message = f"{what} chooses GPU {', '.join(map(str, beyond))}, and {given}"
            severity = WARNING if what.startswith("CUDA_VISIBLE_DEVICES") else ERROR
            yield Violation(where, message, hint, severity=severity)


def _chosen(request: Request) -> Iterator[tuple[str, str, Location]]:
    """What chooses GPUs by their numbers, in the batch script's own shell; the numbers, and the place."""
    for assignment in request.shell.assignments:
        value = assignment.value or ""
        if assignment.name == "CUDA_VISIBLE_DEVICES" and _NUMBERS.fullmatch(value):
            yield f"CUDA_VISIBLE_DEVICES={value}", value, request.shell.locate(assignment.value_offset)
    for launch in request.launches:
        call = launch.call("deepspeed")
        option = call.options.get("--include") if call is not None else None
        match = _LOCAL.fullmatch((option.values[0].value or "") if option is not None and option.values else "")
        if option is not None and match is not None:
            yield f"deepspeed --include {match[0]}", match[1], launch.script.locate(option.values[0])


@blocks.rule("SLM068", WARNING, "init", _SHOWN)
def slurm_shows_the_gpus(request: Request) -> Violations:
    """CUDA_VISIBLE_DEVICES is left to Slurm, which sets it for a job with GPUs.

    Prevents: CUDA error: invalid device ordinal: SLURM_JOB_GPUS has the node's numbers, and a job's own start at 0.
    Fix: remove it"""
    for assignment in request.shell.assignments:
        match = _OF_SLURM.fullmatch(assignment.raw)
        if assignment.name == "CUDA_VISIBLE_DEVICES" and match:
            message = f"CUDA_VISIBLE_DEVICES={assignment.raw}: {match[1]} has the numbers of the node's GPUs"
            tail = "where the site confines jobs to their GPUs, these are numbered from 0"
            yield Violation(request.shell.locate(assignment), f"{message}; {tail}", "remove it: Slurm sets it")
