"""The keys of accelerate configs, and their values, as accelerate loads them.

The subjects of the rules on accelerate are here too: which configs and launch lines they judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.violations import (
    accelerate,
    listed,
    suggest,
    violation,
)
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....text.wording import show
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import accelerate_calls
from ...python_around import is_read_by_program, release_in
from ..accelerate import AccelerateConfig


class Accelerated(NamedTuple):
    """An accelerate config of a cluster, with the launch lines that go before it."""

    config: AccelerateConfig
    launches: tuple[LauncherCall, ...]
    submission: Submission

    def overridden(self, *options: str) -> bool:
        """Return whether a launch line has one of these options, or may have it."""
        return any(call.opaque or call.has(*options) for call in self.launches)


@subject("accelerate config", "launch script", "DeepSpeed config")
def clusters(submission: Submission) -> Iterator[Accelerated]:
    """The configs of clusters, not of SageMaker, that could be read to their end."""
    launches = tuple(accelerate_calls(submission))
    for config in submission.of(AccelerateConfig):
        if config.readable and config.value("compute_environment") != "AMAZON_SAGEMAKER":
            yield Accelerated(config, launches, submission)


def _is_for_machines(run: Accelerated) -> bool:
    """Whether a config is for several machines, and is what `accelerate launch` goes by.

    No launch line sets their number, and no program is there that names the file, unless a line
    names it too: such a program reads it, and may set the rest by itself.
    """
    if run.config.machines <= 1 or run.overridden("--num_machines"):
        return False
    links = (link for link in run.submission.references if link.kind == "accelerate config")
    is_on_a_line = any(config is run.config for link in links for config in link.documents)
    return is_on_a_line or not is_read_by_program(run.config.path)


#: Those for several machines, whose number no launch line sets.
groups: Final = clusters.where(
    _is_for_machines,
    "accelerate config",
    "launch script",
)


def config_read_by(
    line: LauncherCall, configs: Sequence[AccelerateConfig]
) -> AccelerateConfig | None:
    """The config that a launch line names, else the only one that there is."""
    name = line.options.text("--config_file")
    if name is not None:
        configs = [
            config for config in configs if PurePath(config.path).name == PurePath(name).name
        ]
    return configs[0] if len(configs) == 1 else None


#: The keys of a config of a cluster. Source: accelerate commands/config/config_args.py, BaseConfig
#: and ClusterConfig @ 1.15.0; the last two are legacy.
TOP_KEYS: Final = (
    "compute_environment",
    "distributed_type",
    "mixed_precision",
    "use_cpu",
    "debug",
    "num_processes",
    "machine_rank",
    "num_machines",
    "gpu_ids",
    "main_process_ip",
    "main_process_port",
    "rdzv_backend",
    "same_network",
    "main_training_function",
    "enable_cpu_affinity",
    "fp8_config",
    "deepspeed_config",
    "fsdp_config",
    "parallelism_config",
    "megatron_lm_config",
    "mpirun_config",
    "downcast_bf16",
    "tpu_name",
    "tpu_zone",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "command_file",
    "commands",
    "tpu_vm",
    "tpu_env",
    "dynamo_config",
    "fp16",
    "dynamo_backend",
)
#: The first release without the type TPU. Source: accelerate utils/dataclasses.py @ 0.27.2 and
#: 0.28.0 (DistributedType)
_WITHOUT_TPU: Final = (0, 28)
#: Source: accelerate utils/dataclasses.py:625-638.
DISTRIBUTED_TYPES: Final = (
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
    "DEEPSPEED",
    "FSDP",
    "XLA",
    "MEGATRON_LM",
    "MULTI_HPU",
    "MULTI_NEURON",
)
# accelerate utils/dataclasses.py:685-687
ENVIRONMENTS: Final = ("LOCAL_MACHINE", "AMAZON_SAGEMAKER")
PRECISIONS: Final = ("no", "fp8", "fp16", "bf16")  # accelerate utils/dataclasses.py:783-786
_ARGS: Final = "commands/config/config_args.py"
#: Keys that only older releases have, each with the last release that has it, of those from 0.12.0
#: to 1.15.0. Source: the file above.
_GONE_KEYS: Final = {"ipex_config": "1.12.0", "tp_config": "1.6.0"}
#: Keys of deepspeed_config that people write at the top of the file.
_OF_DEEPSPEED: Final = (
    "zero_stage",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero3_init_flag",
    "deepspeed_config_file",
)


@clusters.rule("ACC001", ERROR, "launcher", accelerate(f"{_ARGS} (from_yaml_file)"))
def keys_are_known(run: Accelerated) -> Violations:
    """Every key of an accelerate config is one that accelerate has.
    Prevents: ValueError: The config file had unknown keys. A warning where an older release has it.
    Fix: correct the key, or remove it"""
    present = {key for key, _, _ in run.config.entries("")}
    for key, at, _ in run.config.entries(""):
        if key in _GONE_KEYS:
            message = (
                f"accelerate 1.15 has no key {key}, and refuses it; the last release seen with it "
                f"is {_GONE_KEYS[key]}"
            )
            hint = f"remove it, or pin accelerate=={_GONE_KEYS[key]}"
            yield Violation(run.config.locate_key(at), message, hint, severity=WARNING)
        elif key not in TOP_KEYS:
            hint = suggest(key.lower(), TOP_KEYS, "remove it", present)
            if key in _OF_DEEPSPEED:
                hint = f"move {key} into deepspeed_config"
            yield Violation(
                run.config.locate_key(at), f"unknown key {key}: accelerate 1.15 refuses it", hint
            )


@clusters.rule("ACC002", ERROR, "launcher", accelerate(f"{_ARGS} (process_config, __post_init__)"))
def type_is_known(run: Accelerated) -> Violations:
    """distributed_type is there, in capitals, and compute_environment too where it is given.
    Prevents: ValueError: A `distributed_type` must be specified, or: 'x' is not a valid
    DistributedType
    Fix: set distributed_type: DEEPSPEED
    """
    config = run.config
    if not config.has("distributed_type"):
        yield violation(
            config, "", "distributed_type is missing", "add distributed_type: DEEPSPEED"
        )
    for name, choices in (
        ("distributed_type", DISTRIBUTED_TYPES),
        ("compute_environment", ENVIRONMENTS),
    ):
        value = config.value(name)
        if not config.has(name) or value in choices:
            continue
        if name == "distributed_type" and not isinstance(value, str):
            continue  # ACC019 reports it
        if value == "TPU":
            yield from _of_tpus(run)
            continue
        message = f"{name} is {show(value)}, which accelerate doesn't have"
        yield violation(config, name, message, suggest(str(value).upper(), choices))


def _of_tpus(run: Accelerated) -> Violations:
    """A violation where the release has no type TPU any more."""
    release, name = release_in(run.submission, "accelerate", run.config.path), "distributed_type"
    if release.version >= _WITHOUT_TPU:
        message = f"{release} has no distributed_type TPU, which is XLA since 0.28"
        hint = "set distributed_type: XLA"
        severity = None if release.where and release.exact else WARNING
        yield violation(run.config, name, message, hint, severity=severity)


@clusters.rule("ACC019", ERROR, "silent", accelerate(f"{_ARGS} (__post_init__)"))
def type_is_text(run: Accelerated) -> Violations:
    """distributed_type is text: 'NO' in quotes, because YAML reads no as false.
    Prevents: No error: one process, whatever num_processes is.
    Fix: write 'NO' in quotes, or DEEPSPEED"""
    name = "distributed_type"
    value, processes = run.config.value(name, "NO"), run.config.value("num_processes")
    if not isinstance(value, str) and processes != 1:
        message = f"distributed_type is {show(value)}, not text: accelerate starts one process only"
        hint = "set distributed_type to 'NO', or to DEEPSPEED"
        yield violation(run.config, name, message, hint)


@clusters.rule(
    "ACC003", ERROR, "launcher", accelerate("utils/launch.py (prepare_deepspeed_cmd_env)")
)
def precision_is_known(run: Accelerated) -> Violations:
    """mixed_precision is 'no', in quotes, fp16, bf16 or fp8.
    Prevents: ValueError: Unknown mixed_precision mode, or AttributeError: 'bool' object has no
    attribute 'lower'
    Fix: use 'no', fp16, bf16 or fp8
    """
    name = "mixed_precision"
    value = run.config.value(name)
    if value is None or run.overridden("--mixed_precision"):
        return
    if isinstance(value, bool):
        message = (
            f"mixed_precision is {show(value)}: YAML reads no as false, and "
            "accelerate requires text"
        )
        yield violation(run.config, name, message, "set mixed_precision to 'no', in quotes")
    elif not isinstance(value, str) or value.lower() not in PRECISIONS:
        message = f"mixed_precision is {show(value)}, which accelerate doesn't have"
        yield violation(run.config, name, message, f"use {listed(PRECISIONS)}")


@clusters.rule(
    "ACC007", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def sections_are_mappings(run: Accelerated) -> Violations:
    """deepspeed_config, fsdp_config and the other sections are mappings.
    Prevents: AttributeError: 'str' object has no attribute 'keys', or a section that is silently
    ignored.
    Fix: write a mapping
    """
    for key in (
        "deepspeed_config",
        "fsdp_config",
        "megatron_lm_config",
        "parallelism_config",
        "fp8_config",
    ):
        value, is_deepspeeds = run.config.value(key), key == "deepspeed_config"
        if value is None or isinstance(value, Mapping):
            continue
        message, hint = f"{key} is {show(value)}, not a mapping", "write a mapping, or {}"
        if is_deepspeeds:
            hint = "write a mapping with deepspeed_config_file or zero_stage"
        is_read = is_deepspeeds and run.config.uses_deepspeed
        yield violation(run.config, key, message, hint, severity=None if is_read else WARNING)
