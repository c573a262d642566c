"""accelerate configs as accelerate loads them: keys and values that stop `accelerate launch`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from ....documents.document import AccelerateConfig, at_key
from ....documents.submission import Submission
from ....findings import ERROR, Severity, Violation, Violations
from ....job.source import escape
from ....job.wording import show
from ...numbers import listed
from ...rule import subject, submissions
from ...sources import accelerate

#: Source: accelerate commands/config/config_args.py, BaseConfig and ClusterConfig @ 1.15.0; the last two are legacy.
TOP_KEYS: Final = (
    *("compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes"),
    *("machine_rank", "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend"),
    *("same_network", "main_training_function", "enable_cpu_affinity", "fp8_config", "deepspeed_config"),
    *("fsdp_config", "parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name"),
    *("tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env"),
    *("dynamo_config", "fp16", "dynamo_backend"),
)
#: Source: accelerate utils/dataclasses.py:625-638.
DISTRIBUTED_TYPES: Final = (
    *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU"),
    *("DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM", "MULTI_HPU", "MULTI_NEURON"),
)
ENVIRONMENTS: Final = ("LOCAL_MACHINE", "AMAZON_SAGEMAKER")  # accelerate utils/dataclasses.py:685-687
PRECISIONS: Final = ("no", "fp8", "fp16", "bf16")  # accelerate utils/dataclasses.py:783-786
_COUNTS: Final = ("num_processes", "num_machines", "machine_rank", "main_process_port")
_SECTIONS: Final = ("deepspeed_config", "fsdp_config", "megatron_lm_config", "parallelism_config", "fp8_config")
_MAX_PORT: Final = 65_535  # 16 bits


def on_the_line(submission: Submission, *names: str) -> bool:
    """Whether a launch line gives one of these options to `accelerate launch`, or may give it."""
    for launch in submission.launches:
        for call in launch.calls:
            if call.program == "accelerate" and (call.options.opaque or any(map(call.options.has, names))):
                return True
    return False


@subject("accelerate config")
def clusters(submission: Submission) -> Iterator[AccelerateConfig]:
    """The configs of clusters, not of SageMaker, that could be read to their end."""
    for config in submission.accelerate_configs:
        source = config.source
        sagemaker = source.value("/compute_environment", "LOCAL_MACHINE") == "AMAZON_SAGEMAKER"
        if source.complete and isinstance(source.data, dict) and not sagemaker:
            yield config


@clusters.rule("ACC001", ERROR, "launcher", accelerate("commands/config/config_args.py (from_yaml_file)"))
def keys_are_known(config: AccelerateConfig) -> Violations:
    """Every key of an accelerate config is one that accelerate knows.

    Prevents: ValueError: The config file had unknown keys
    Fix: the key's right name, or none
    """
    source = config.source
    for key in source.data if isinstance(source.data, dict) else ():
        if key not in TOP_KEYS:
            close = difflib.get_close_matches(key.lower(), TOP_KEYS, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else "take it out"
            if key in _DEEPSPEED_HOMES:
                hint = f"{key} stands under deepspeed_config"
            message = f"{key} is no key that accelerate 1.15 knows"
            yield Violation(where=at_key(source, f"/{escape(key)}"), message=message, hint=hint)


_DEEPSPEED_HOMES: Final = frozenset(
    ["zero_stage", "gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag", "deepspeed_config_file"]
)


@clusters.rule(
    "ACC002", ERROR, "launcher", accelerate("commands/config/config_args.py (process_config, __post_init__)")
)
def type_is_known(config: AccelerateConfig) -> Violations:
    """distributed_type is there, in capitals, and compute_environment too where it is given.

    Prevents: ValueError: A `distributed_type` must be specified, or: 'x' is not a valid DistributedType
    Fix: distributed_type: DEEPSPEED
    """
    source = config.source
    value = source.value("/distributed_type")
    if not source.has("/distributed_type"):
        message = "distributed_type is missing"
        yield Violation(where=source.locate(""), message=message, hint="distributed_type: DEEPSPEED")
    elif isinstance(value, str) and value not in DISTRIBUTED_TYPES:
        yield _choice(config, "/distributed_type", value, DISTRIBUTED_TYPES)
    environment = source.value("/compute_environment", "LOCAL_MACHINE")
    if environment not in ENVIRONMENTS:
        yield _choice(config, "/compute_environment", environment, ENVIRONMENTS)


@clusters.rule("ACC019", ERROR, "silent", accelerate("commands/config/config_args.py (__post_init__)"))
def type_is_text(config: AccelerateConfig) -> Violations:
    """distributed_type is text: 'NO' in quotes, for YAML reads no as false.

    Prevents: No error: one process, whatever num_processes says.
    Fix: 'NO' in quotes, or DEEPSPEED
    """
    value = config.source.value("/distributed_type", "NO")
    if not isinstance(value, str):
        where = config.source.locate("/distributed_type")
        message = f"distributed_type is {show(value)}, not text: accelerate starts one process, without any of them"
        yield Violation(where=where, message=message, hint="distributed_type: 'NO', or DEEPSPEED")


def _choice(config: AccelerateConfig, pointer: str, value: object, choices: tuple[str, ...]) -> Violation:
    close = difflib.get_close_matches(str(value).upper(), choices, n=1, cutoff=0.6)
    return Violation(
        where=config.source.locate(pointer),
        message=f"{pointer[1:]} is {show(value)}, which accelerate doesn't have",
        hint=f"did you mean {close[0]}?" if close else listed(choices),
    )


@submissions.rule(
    "ACC003", ERROR, "launcher", accelerate("utils/launch.py (prepare_deepspeed_cmd_env)"), reads=("accelerate config",)
)
def precision_is_known(submission: Submission) -> Violations:
    """mixed_precision is 'no', in quotes, fp16, bf16 or fp8.

    Prevents: ValueError: Unknown mixed_precision mode, or AttributeError: 'bool' object has no attribute 'lower'
    Fix: 'no', fp16, bf16 or fp8
    """
    for config in clusters(submission):
        value = config.source.value("/mixed_precision")
        if value is None or on_the_line(submission, "--mixed_precision"):
            continue
        where = config.source.locate("/mixed_precision")
        if isinstance(value, bool):
            message = f"mixed_precision is {show(value)}: YAML reads no as false, and accelerate takes text"
            yield Violation(where=where, message=message, hint="mixed_precision: 'no'")
        elif not isinstance(value, str) or value.lower() not in PRECISIONS:
            message = f"mixed_precision is {show(value)}, which accelerate doesn't have"
            yield Violation(where=where, message=message, hint=listed(PRECISIONS))


@submissions.rule(
    "ACC004",
    ERROR,
    "launcher",
    accelerate("commands/config/config_args.py (ClusterConfig), utils/launch.py"),
    reads=("accelerate config",),
)
def counts_are_whole(submission: Submission) -> Violations:
    """num_processes, num_machines, machine_rank and main_process_port are whole numbers in their ranges.

    Prevents: TypeError or ValueError in the launcher.
    Fix: whole numbers
    """
    for config in clusters(submission):
        alone = (config.source.integer("/num_machines") or 1) == 1
        for key in _COUNTS:
            value = config.source.value(f"/{key}")
            where = config.source.locate(f"/{key}")
            absent = not config.source.has(f"/{key}") or (value is None and key == "main_process_port")
            if absent or on_the_line(submission, f"--{key}"):
                continue
            if type(value) is not int and not (alone and key != "main_process_port" and _is_digits(value)):
                message = f"{key} is {show(value)}, not a whole number"
                yield Violation(where=where, message=message, hint=f"{key}: {_number(key, value)}")
            elif key == "main_process_port" and isinstance(value, int) and not 0 <= value <= _MAX_PORT:
                yield Violation(where=where, message=f"{key} is {value}, no port", hint=f"1024 to {_MAX_PORT}")
            elif key == "num_machines" and isinstance(value, int) and value < 1:
                message = f"{key} is {value}; it is at least 1"
                yield Violation(where=where, message=message, hint=f"{key}: 1", severity=Severity.WARNING)


def _is_digits(value: object) -> bool:
    """Text that accelerate takes for a number: on one machine it is only handed on."""
    return isinstance(value, str) and value.isdecimal() and len(value) < 10


def _number(key: str, value: object) -> str:
    usual = {"num_machines": "1", "machine_rank": "0", "main_process_port": "29500"}
    return str(value) if _is_digits(value) else usual.get(key, "8")


@submissions.rule(
    "ACC005",
    ERROR,
    "launcher",
    accelerate("commands/launch.py (_validate_launch_command)"),
    reads=("accelerate config",),
)
def processes_are_counted(submission: Submission) -> Violations:
    """num_processes is at least 1, in the config or on the launch line.

    Prevents: ValueError: You need to manually pass in `--num_processes` using this config yaml.
    Fix: num_processes: nodes × GPUs of a node
    """
    for config in clusters(submission):
        source = config.source
        if on_the_line(submission, "--num_processes") or source.value("/distributed_type") in (None, "NO", "XLA"):
            continue
        value = source.value("/num_processes", -1)
        if type(value) is int and value < 1:
            absent = not source.has("/num_processes")
            message = "num_processes is missing" if absent else f"num_processes is {value}"
            where = source.locate("") if absent else source.locate("/num_processes")
            hint = "num_processes: GPUs of all nodes together, or --num_processes on the launch line"
            launched = any(call.program == "accelerate" for launch in submission.launches for call in launch.calls)
            severity = None if launched else Severity.NOTE  # the launch line may give it
            yield Violation(where=where, message=message, hint=hint, severity=severity)


@submissions.rule(
    "ACC006",
    ERROR,
    "launcher",
    accelerate("commands/launch.py (_validate_launch_command)"),
    reads=("accelerate config",),
)
def ids_are_text(submission: Submission) -> Violations:
    """gpu_ids is text, and has an id for every process of a node.

    Prevents: AttributeError: 'int' object has no attribute 'split', or CUDA error: invalid device ordinal
    Fix: gpu_ids: all
    """
    for config in clusters(submission):
        value = config.source.value("/gpu_ids")
        where = config.source.locate("/gpu_ids")
        if value is None or on_the_line(submission, "--gpu_ids"):
            continue
        if not isinstance(value, str):
            message = f"gpu_ids is {show(value)}, not text, and accelerate splits it at commas"
            shown = ",".join(map(str, value)) if isinstance(value, list) else value
            yield Violation(where=where, message=message, hint=f"gpu_ids: '{shown}', or all")
            continue
        processes, machines = config.source.integer("/num_processes"), config.source.integer("/num_machines") or 1
        named = [part for part in value.split(",") if part.strip()]
        if value == "all" or processes is None or on_the_line(submission, "--num_processes", "--num_machines"):
            continue
        each = processes // max(machines, 1)
        if len(named) < each:
            message = f"gpu_ids names {len(named)} GPUs for {each} processes on a machine"
            yield Violation(
                where=where, message=message, hint=f"gpu_ids: all, or num_processes: {len(named) * machines}"
            )


@clusters.rule("ACC007", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)"))
def sections_are_mappings(config: AccelerateConfig) -> Violations:
    """deepspeed_config, fsdp_config and the like are mappings.

    Prevents: AttributeError: 'str' object has no attribute 'keys', or a section that is silently left out.
    Fix: a mapping
    """
    for key in _SECTIONS:
        value = config.source.value(f"/{key}")
        if value is not None and not isinstance(value, Mapping):
            message = f"{key} is {show(value)}, not a mapping"
            own = key == "deepspeed_config"
            hint = "a mapping with deepspeed_config_file or zero_stage" if own else "a mapping, or {}"
            used = own and config.source.value("/distributed_type") == "DEEPSPEED"
            severity = None if used else Severity.WARNING  # of another type the section isn't read
            where = config.source.locate(f"/{key}")
            yield Violation(where=where, message=message, hint=hint, severity=severity)


_READS: Final = ("accelerate config",)
