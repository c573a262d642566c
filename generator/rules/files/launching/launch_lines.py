"""Launch lines as such: known options, in front of the script, one launcher, a port that is free."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.loader import closest
from ....documents.shell.launcher_options import TABLES
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...rule import submissions
from ...sources import accelerate, derived, torch
from .launch_calls import at, at_value, calls_of, said
from .launch_ports import PORTS

_MOST_PORT: Final = 65_535  # sixteen bits of TCP
_PRIVILEGED: Final = 1_024  # ports below are for root
#: Options that no training script has, so that behind the script they are misplaced.
_MISPLACED: Final = {
    "torchrun": ("nproc_per_node", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone"),
    "deepspeed": ("num_gpus", "num_nodes", "hostfile", "include", "exclude", "no_ssh", "launcher", "force_multi"),
    "accelerate": (
        "num_processes",
        "num_machines",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "config_file",
    ),
}


@submissions.rule(
    "LNCH025",
    ERROR,
    "launcher",
    torch("distributed/run.py:406; DeepSpeed 0.19.8 launcher/runner.py:44; accelerate 1.15.0 commands/launch.py"),
    reads=("launch script",),
)
def options_are_known(submission: Submission) -> Violations:
    """Every option before the script is one that the launcher has.

    Prevents: error: unrecognized arguments.
    Fix: Correct the name, or put a script's option behind the script.
    """
    for launch, call in calls_of(submission, "torchrun", "deepspeed", "accelerate"):
        table = TABLES[call.program]
        for option in call.options.unknown:
            if option.written.value is None or not option.name.startswith("-"):
                continue
            near = _near(option.name, tuple(name for name in table.options if name.startswith("--")))
            message = f"{call.program} has no option {option.name}"
            if near:
                yield Violation(where=at(launch, option), message=message, hint=f"did you mean {near}?")
            else:
                script = launch.program.raw if launch.program else "the script"
                hint = f"if it is the script's, put it behind {script}"
                # another release may have it
                yield Violation(where=at(launch, option), message=message, hint=hint, severity=Severity.WARNING)


def _near(name: str, names: tuple[str, ...]) -> str | None:
    plain = {known.lstrip("-").replace("_", "-"): known for known in names}
    stem = name.lstrip("-").replace("_", "-").lower()
    found = stem if stem in plain else closest(stem, plain)
    return plain[found] if found else None


@submissions.rule(
    "LNCH036",
    WARNING,
    "launcher",
    derived("argparse.REMAINDER: what follows the script is the script's"),
    reads=("launch script",),
)
def options_stand_before_the_script(submission: Submission) -> Violations:
    """A launcher's own options stand before the script; what follows it goes to the script.

    Prevents: One process; or error: unrecognized arguments, from the script.
    Fix: Options before the script.
    """
    for launch, call in calls_of(submission, "torchrun", "deepspeed", "accelerate"):
        if launch.program is None or launch.calls[-1] is not call:
            continue
        for word in launch.arguments:
            stem = word.prefix.partition("=")[0]
            name = stem.lstrip("-").replace("-", "_")
            if stem.startswith("--") and name in _MISPLACED[call.program]:
                message = (
                    f"{stem} stands behind {launch.program.raw}, so it goes to the script and not to {call.program}"
                )
                hint = f"put it before {launch.program.raw}"
                yield Violation(where=launch.script.locate(word), message=message, hint=hint)


@submissions.rule(
    "LNCH035",
    ERROR,
    "launcher",
    derived("TCP ports have sixteen bits, and those below 1024 are for root"),
    reads=("launch script",),
)
def ports_exist(submission: Submission) -> Violations:
    """A port is a number from 1024 to 65535.

    Prevents: Permission denied, or Address already in use, at the start of the rendezvous.
    Fix: 1024 to 65535.
    """
    for program, name in PORTS:
        for launch, call in calls_of(submission, program):
            option, text = call.options.get(name), call.options.text(name)
            if option is not None and text is not None and not _is_port(text):
                message = f"{said(call, name)} is no port that a job can open"
                yield Violation(
                    where=at_value(launch, option), message=message, hint=f"{name} 29500, from 1024 to 65535"
                )
    for launch in submission.launches:
        assignment = launch.environment.get("MASTER_PORT")
        if assignment is not None and assignment.value is not None and not _is_port(assignment.value):
            message = f"MASTER_PORT={assignment.raw} is no port that a job can open"
            yield Violation(where=launch.script.locate(assignment), message=message, hint="from 1024 to 65535")


def _is_port(text: str) -> bool:
    """Whether a job may open it; 0 asks the system for a free one."""
    text = text.strip()
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and (text == "0" or (_PRIVILEGED <= int(text) <= _MOST_PORT))


@submissions.rule(
    "LNCH039", WARNING, "silent", derived("argparse keeps the last value of an option"), reads=("launch script",)
)
def options_are_given_once(submission: Submission) -> Violations:
    """An option of a launcher is given once.

    Prevents: Another number of processes than one reads first.
    Fix: Keep one.
    """
    for launch, call in calls_of(submission, "torchrun", "deepspeed", "accelerate"):
        seen: dict[str, str] = {}
        for option in call.options.entries:
            text = option.values[0].value if option.values else None
            if text is None or not option.known:
                continue
            before = seen.get(option.name)
            if before is not None and before != text:
                message = f"{call.program} {option.name}={text} replaces {option.name}={before} before it"
                yield Violation(where=at(launch, option), message=message, hint="keep one of the two")
            seen[option.name] = text


@submissions.rule(
    "LNCH037",
    ERROR,
    "silent",
    accelerate("utils/launch.py:217: num_processes // num_machines start on each"),
    reads=("launch script",),
)
def processes_are_those_of_all_machines(submission: Submission) -> Violations:
    """accelerate's --num_processes counts those of all machines.

    Prevents: Idle GPUs on every machine.
    Fix: Machines × GPUs per machine.
    """
    for launch, call in calls_of(submission, "accelerate"):
        option, total = call.options.get("--num_processes"), call.options.integer("--num_processes")
        machines = call.options.integer("--num_machines")
        if option is None or total is None or machines is None or machines < 2 or total <= 0:
            continue
        each = submission.world.gpus_per_node
        if each and total == each:
            message = (
                f"accelerate --num_processes {total} is for all {machines} machines: "
                f"{total // machines} start on each, which has {each} GPUs"
            )
            hint = f"--num_processes {machines * each}"
            yield Violation(where=at_value(launch, option), message=message, hint=hint)
