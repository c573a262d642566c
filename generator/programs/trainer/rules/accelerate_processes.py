"""How many processes and GPUs accelerate configs and their launch lines ask for."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations, against
from ....rules.violations import accelerate, derived, note_if_to_fill, violation
from ....text.wording import counted, show
from ...launching.launcher_call import DEVICES, LauncherCall
from ..accelerate import is_digits
from .accelerate import DISTRIBUTED_TYPES, Accelerated, clusters

_VALIDATION: Final = accelerate("commands/launch.py (_validate_launch_command)")
#: Numbers that may be text on one machine: accelerate hands them on. It compares the others.
_PASSED_ON: Final = ("num_processes", "machine_rank")
#: Values for hints.
_USUAL: Final = {"num_machines": "1", "machine_rank": "0", "main_process_port": "29500"}
_MAX_PORT: Final = 65_535  # 16 bits


@clusters.rule(
    "ACC004",
    ERROR,
    "launcher",
    accelerate("commands/config/config_args.py (ClusterConfig), utils/launch.py"),
)
def counts_are_integers(run: Accelerated) -> Violations:
    """num_processes, num_machines, machine_rank and main_process_port are integers in their ranges.
    Prevents: TypeError or ValueError in the launcher.
    Fix: write integers"""
    for key in ("num_processes", "num_machines", "machine_rank", "main_process_port"):
        value, is_port = run.config.value(key), key == "main_process_port"
        is_absent = not run.config.has(key) or (value is None and is_port)
        is_passed_on = run.config.machines == 1 and key in _PASSED_ON and is_digits(value)
        if is_absent or is_passed_on or run.overridden(f"--{key}"):
            continue
        if type(value) is not int:
            message = f"{key} is {show(value)}, not an integer"
            may_be_given = value is None and not run.launches  # by a launch line that isn't here
            severity = NOTE if may_be_given else None
            if value not in DISTRIBUTED_TYPES:  # which look like placeholders in capitals
                severity = note_if_to_fill(value, key, severity)
            usual = str(value) if is_digits(value) else _USUAL.get(key, "8")
            yield violation(run.config, key, message, f"set {key} to {usual}", severity=severity)
        elif is_port and not 0 <= value <= _MAX_PORT:
            message = f"main_process_port is {value}, not a port number"
            yield violation(run.config, key, message, f"use a port from 1024 to {_MAX_PORT}")
        elif key == "num_machines" and value < 1:
            message = f"num_machines is {value}; it must be at least 1"
            yield violation(run.config, key, message, "set num_machines to 1", severity=WARNING)


@clusters.rule("ACC005", ERROR, "launcher", _VALIDATION)
def processes_are_counted(run: Accelerated) -> Violations:
    """num_processes is at least 1, in the config or on the launch line.
    Prevents: ValueError: You need to manually pass in `--num_processes` using this config yaml.
    Fix: set num_processes to nodes × GPUs of a node"""
    config = run.config
    is_counted = config.value("distributed_type") not in (None, "NO", "XLA")
    if not is_counted or run.overridden("--num_processes"):
        return
    value, is_absent = config.value("num_processes", -1), not config.has("num_processes")
    if type(value) is int and value < 1:
        message = "num_processes is missing" if is_absent else f"num_processes is {value}"
        hint = (
            "set num_processes to the GPUs of all nodes together, or add "
            "--num_processes to the launch line"
        )
        severity = None if run.launches else NOTE  # a launch line may give it
        name = "" if is_absent else "num_processes"
        yield violation(config, name, message, hint, severity=severity)


@clusters.rule("ACC006", ERROR, "launcher", _VALIDATION)
def ids_are_text(run: Accelerated) -> Violations:
    """gpu_ids is text, and has an id for every process of a node.
    Prevents: AttributeError: 'int' object has no attribute 'split', or CUDA error: invalid device
    ordinal. A note where the launch line, which may have another number of processes, isn't there.
    Fix: set gpu_ids: all
    """
    config, value = run.config, run.config.value("gpu_ids")
    if value is None or run.overridden("--gpu_ids"):
        return
    if not isinstance(value, str):
        message = f"gpu_ids is {show(value)}, not text, and accelerate splits it at commas"
        shown = ",".join(map(str, value)) if isinstance(value, list) else value
        yield violation(config, "gpu_ids", message, f"set gpu_ids to '{shown}', or to all")
        return
    if value == "all" or run.overridden("--num_processes", "--num_machines"):
        return
    processes = (config.processes or 0) // max(config.machines, 1)
    ids = len([part for part in value.split(",") if part.strip()])
    if ids < processes:
        message = f"gpu_ids names {ids} GPUs for {processes} processes on a machine"
        hint = f"set gpu_ids to all, or num_processes to {ids * config.machines}"
        yield violation(config, "gpu_ids", message, hint, severity=None if run.launches else NOTE)


@clusters.rule("ACC023", ERROR, "init", derived("torch sees the devices that the variable names"))
def visible_devices_are_enough(run: Accelerated) -> Violations:
    """CUDA_VISIBLE_DEVICES of the launch line names a GPU for every process of a machine.
    Prevents: CUDA error: invalid device ordinal, in the processes beyond it
    Fix: name more devices, or set num_processes to their number
    """
    config = run.config
    if config.machines > 1 or run.overridden("--num_machines", "--gpu_ids"):
        return
    for call in run.launches:
        visible = call.launch.environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None or not DEVICES.fullmatch(visible.value or ""):
            continue
        number = len((visible.value or "").split(","))
        is_on_line = call.has("--num_processes")  # which counts before the config
        processes = call.options.integer("--num_processes") if is_on_line else config.processes
        if not processes or processes <= number or (is_on_line and not _ranks_by_line(run, call)):
            continue
        shown = f"CUDA_VISIBLE_DEVICES names {counted(number, 'GPU')}"
        named = call.launch.script.locate(visible.value_offset)
        name = "--num_processes" if is_on_line else "num_processes"
        hint = f"set {name} to {number}, or name {processes} devices"
        if is_on_line:
            yield Violation(named, f"{shown}, and {name} is {processes}", hint)
        else:
            message = f"{name} is {processes}; {shown}"
            yield against(named, violation(config, name, message, hint))


def _ranks_by_line(run: Accelerated, call: LauncherCall) -> bool:
    """Whether a launch line that counts the processes starts so many on this machine's GPUs.

    The config or the line says that they are several, and neither has them on CPUs or chooses the
    GPUs itself.
    """
    config = run.config
    is_several = config.value("distributed_type") in ("MULTI_GPU", "DEEPSPEED", "FSDP")
    return (
        is_several
        and not call.has("--cpu")
        and config.value("use_cpu") in (None, False)
        and config.value("gpu_ids") in (None, "all")
    )
