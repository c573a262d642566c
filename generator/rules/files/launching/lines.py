"""Launch lines as such: known options, before the script, given once, a port that exists."""

from __future__ import annotations

import re
from typing import Final

from ....catalog.loader import closest
from ....documents.command_line import CommandLine
from ....documents.launcher_call import PORTS, LauncherCall
from ....documents.shell.launch_line import Launch
from ....documents.shell.launcher_options import TABLES
from ....documents.world import world_of
from ....findings import ERROR, WARNING, Violation, Violations
from ...sources import accelerate, derived, torch
from ..subjects import accelerate_calls, launcher_calls, launches

_MOST_PORT: Final = 65_535  # sixteen bits of TCP
_PRIVILEGED: Final = 1_024  # ports below are for root
#: Options that no training script has, so that behind the script they are misplaced.
_MISPLACED: Final = {
    "torchrun": ("nproc_per_node", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone"),
    "deepspeed": ("num_gpus", "num_nodes", "hostfile", "include", "exclude", "no_ssh", "launcher", "force_multi"),
    "accelerate": (
        *("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "config_file"),
    ),
}
_TABLES: Final = torch("distributed/run.py:406; DeepSpeed 0.19.8 launcher/runner.py:44; accelerate 1.15.0 launch.py")
_PORT_SOURCE: Final = derived("TCP ports have sixteen bits, and those below 1024 are for root")


@launcher_calls.rule("LNCH025", ERROR, "launcher", _TABLES)
def options_are_known(call: LauncherCall) -> Violations:
    """Every option before the script is one that the launcher has.

    Prevents: error: unrecognized arguments.
    Fix: correct the name, or put a script's option after the script"""
    known = [name for name in TABLES[call.program].options if name.startswith("--")]
    for option in call.options.unknown:
        if option.written.value is None or not option.name.startswith("-"):
            continue
        near, script = _near(option.name, known), call.launch.program.raw if call.launch.program else "the script"
        hint = f"did you mean {near}?" if near else f"if it is the script's, put it after {script}"
        message, severity = f"{call.program} has no option {option.name}", ERROR if near else WARNING
        # A warning where nothing is near, as another release may have it.
        yield Violation(call.shell.locate(option.written), message, hint, severity=severity)


def _near(name: str, names: list[str]) -> str | None:
    plain = {known.lstrip("-").replace("_", "-"): known for known in names}
    stem = name.lstrip("-").replace("_", "-").lower()
    found = stem if stem in plain else closest(stem, plain)
    return plain[found] if found else None


@launcher_calls.rule("LNCH036", WARNING, "launcher", derived("argparse.REMAINDER: what follows is the script's"))
def options_stand_before_the_script(call: LauncherCall) -> Violations:
    """A launcher's own options are before the script; what follows it goes to the script.

    Prevents: One process; or error: unrecognized arguments, from the script.
    Fix: put options before the script"""
    program = call.launch.program
    for word in call.launch.arguments if program and call.launch.calls[-1] is call.call else ():
        stem = word.prefix.partition("=")[0]
        if program and stem.startswith("--") and stem.lstrip("-").replace("-", "_") in _MISPLACED[call.program]:
            message = f"{stem} comes after {program.raw}, so it goes to the script and not to {call.program}"
            yield Violation(call.shell.locate(word), message, f"put it before {program.raw}")


@launches.rule("LNCH035", ERROR, "launcher", _PORT_SOURCE)
def ports_exist(launch: Launch) -> Violations:
    """A port is a number from 1024 to 65535.

    Prevents: Permission denied, or Address already in use, at the start of the rendezvous.
    Fix: write 1024 to 65535"""
    lines = [CommandLine(shell=launch.script, options=call.options, program=call.program) for call in launch.calls]
    for port in (line.text(PORTS[line.program]) for line in lines if line.program in PORTS):
        if port is not None and not _is_port(port.value):
            hint = f"write {port.option.name} 29500, from 1024 to 65535"
            yield port.bad_value(f"{port} is not a port that a job can open", hint)
    variable = launch.environment.get("MASTER_PORT")
    if variable is not None and variable.value is not None and not _is_port(variable.value):
        message = f"MASTER_PORT={variable.raw} is not a port that a job can open"
        yield Violation(launch.script.locate(variable), message, "write 1024 to 65535")


def _is_port(text: str) -> bool:
    """Whether a job may open it; 0 asks the system for a free one."""
    text = text.strip()
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and (text == "0" or (_PRIVILEGED <= int(text) <= _MOST_PORT))


@launcher_calls.rule("LNCH039", WARNING, "silent", derived("argparse keeps the last value of an option"))
def options_are_given_once(call: LauncherCall) -> Violations:
    """An option of a launcher is given once.

    Prevents: Another number of processes than the first option says.
    Fix: keep one"""
    seen: dict[str, str] = {}
    for option in call.options.entries:
        text = option.values[0].value if option.values else None
        if text is None or not option.known:
            continue
        before = seen.get(option.name)
        if before is not None and before != text:
            message = f"{call.program} {option.name}={text} replaces {option.name}={before} before it"
            yield Violation(call.shell.locate(option.written), message, "keep one of the two")
        seen[option.name] = text


@accelerate_calls.rule("LNCH037", ERROR, "silent", accelerate("utils/launch.py:217: num_processes // num_machines"))
def processes_are_those_of_all_machines(call: LauncherCall) -> Violations:
    """accelerate's --num_processes counts those of all machines.

    Prevents: Unused GPUs on every machine.
    Fix: write machines × GPUs per machine"""
    total, machines, each = call.integer("--num_processes"), call.nodes, world_of(call.submission).gpus_per_node
    if each and total is not None and machines is not None and machines > 1 and total.value == each:
        start = f"{each // machines} start on each, which has {each} GPUs"
        message = f"accelerate --num_processes {each} is for all {machines} machines: {start}"
        yield total.bad_value(message, f"write --num_processes {machines * each}")
