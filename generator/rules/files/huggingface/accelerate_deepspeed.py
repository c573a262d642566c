"""The deepspeed_config section of accelerate configs: its keys and values, and the DeepSpeed config beside it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from ....documents.document import AccelerateConfig, at_key
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.source import escape
from ....job.wording import show
from ...numbers import listed
from ...rule import subject, submissions
from ...sources import accelerate
from .accelerate import DISTRIBUTED_TYPES, TOP_KEYS, clusters, on_the_line

_PLUGIN: Final = accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)")

_AT: Final = "/deepspeed_config"
#: Source: accelerate commands/launch.py (the options of its DeepSpeed group) @ 1.15.0.
KEYS: Final = (
    *("deepspeed_config_file", "deepspeed_exclusion_filter", "deepspeed_hostfile", "deepspeed_inclusion_filter"),
    *("deepspeed_moe_layer_cls_names", "deepspeed_multinode_launcher", "gradient_accumulation_steps"),
    *("gradient_clipping", "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device"),
    *("offload_param_nvme_path", "zero3_init_flag", "zero3_save_16bit_model", "zero_stage"),
)
#: Refused beside deepspeed_config_file. Source: accelerate utils/dataclasses.py (_deepspeed_config_checks).
_REFUSED: Final = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device"),
    *("offload_param_device", "offload_param_nvme_path", "zero3_save_16bit_model"),
)
_STAGES: Final = (0, 1, 2, 3)
_DEVICES: Final = ("none", "cpu", "nvme")
#: Source: accelerate utils/other.py (str_to_bool).
_FLAGS: Final = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")


def _uses_deepspeed(config: AccelerateConfig) -> bool:
    return config.source.value("/distributed_type") == "DEEPSPEED"


@subject("accelerate config")
def _sections(submission: Submission) -> Iterator[AccelerateConfig]:
    for config in clusters(submission):
        if isinstance(config.source.value(_AT), dict):
            yield config


@_sections.rule(
    "ACC008",
    WARNING,
    "silent",
    accelerate("commands/launch.py (_validate_launch_command sets any key, nothing reads it)"),
)
def keys_are_known(config: AccelerateConfig) -> Violations:
    """Every key of deepspeed_config is one that accelerate reads.

    Prevents: No error: the setting has its default.
    Fix: the key's right name
    """
    section = config.source.value(_AT)
    for key in section if isinstance(section, dict) else ():
        if key not in KEYS:
            close = difflib.get_close_matches(key.lower(), KEYS, n=1, cutoff=0.6)
            message = f"{key} is no DeepSpeed setting of accelerate's"
            hint = f"did you mean {close[0]}?" if close else "it goes into the JSON that deepspeed_config_file names"
            hint = "it stands at the top of the file" if key in TOP_KEYS else hint
            yield Violation(where=at_key(config.source, f"{_AT}/{escape(key)}"), message=message, hint=hint)


@submissions.rule(
    "HF007",
    ERROR,
    "init",
    accelerate("utils/dataclasses.py (DeepSpeedPlugin._deepspeed_config_checks)"),
    reads=("accelerate config",),
)
def one_source_of_settings(submission: Submission) -> Violations:
    """ContextFlags deepspeed_config_file there is no zero_stage, mixed_precision or other setting that is the file's.

    Prevents: ValueError: When using `deepspeed_config_file`, the following accelerate config variables ...
    Fix: settings in the JSON only
    """
    for config in _sections(submission):
        source = config.source
        if not source.value(f"{_AT}/deepspeed_config_file") or not _uses_deepspeed(config):
            continue
        for key in _REFUSED:
            if source.has(f"{_AT}/{key}"):
                message = f"{key} beside deepspeed_config_file {source.value(f'{_AT}/deepspeed_config_file')}"
                hint = "take it out, and say it in the JSON"
                yield Violation(where=at_key(source, f"{_AT}/{key}"), message=message, hint=hint)
        key = "fp16" if source.value("/fp16") and not source.has("/mixed_precision") else "mixed_precision"
        if source.value(f"/{key}") is not None and not on_the_line(submission, "--mixed_precision"):
            message = f"{key} {show(source.value(f'/{key}'))} beside deepspeed_config_file"
            hint = "take it out, and set bf16 or fp16 in the JSON"
            yield Violation(where=at_key(source, f"/{key}"), message=message, hint=hint)


@_sections.rule("ACC009", ERROR, "init", _PLUGIN)
def values_are_deepspeeds(config: AccelerateConfig) -> Violations:
    """zero_stage is 0 to 3, offload devices are none, cpu or nvme, and flags are true or false.

    Prevents: ValueError when the plugin converts it, or DeepSpeed's own error about the config.
    Fix: a value that DeepSpeed has
    """
    source = config.source
    stage = source.value(f"{_AT}/zero_stage")
    if stage is not None and str(stage) not in map(str, _STAGES):
        message = f"zero_stage is {show(stage)}"
        yield Violation(where=source.locate(f"{_AT}/zero_stage"), message=message, hint=listed(_STAGES))
    for key in ("offload_optimizer_device", "offload_param_device"):
        device = source.value(f"{_AT}/{key}")
        if device is not None and str(device).lower() not in _DEVICES:
            message = f"{key} is {show(device)}"
            hint = "none" if device is False else listed(_DEVICES)
            yield Violation(where=source.locate(f"{_AT}/{key}"), message=message, hint=hint)
    flag = source.value(f"{_AT}/zero3_init_flag")
    if flag is not None and str(flag).lower() not in _FLAGS:
        message = f"zero3_init_flag is {show(flag)}, not true or false"
        yield Violation(where=source.locate(f"{_AT}/zero3_init_flag"), message=message, hint="true or false")
    yield from _numbers(config)


def _numbers(config: AccelerateConfig) -> Violations:
    source = config.source
    steps = source.value(f"{_AT}/gradient_accumulation_steps")
    if steps is not None and steps != "auto" and not (type(steps) is int and steps > 0) and not _is_digits(steps):
        message = f"gradient_accumulation_steps is {show(steps)}"
        where = source.locate(f"{_AT}/gradient_accumulation_steps")
        yield Violation(where=where, message=message, hint="a whole number of at least 1")
    clipping = source.value(f"{_AT}/gradient_clipping")
    if clipping is not None and not _is_number(clipping):
        message = f"gradient_clipping is {show(clipping)}, not a number"
        yield Violation(where=source.locate(f"{_AT}/gradient_clipping"), message=message, hint="1.0")


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.isdecimal() and value.strip("0") != ""


def _is_number(value: object) -> bool:
    if isinstance(value, str) and value != "auto":
        try:
            float(value[:40])
        except ValueError:
            return False
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


@submissions.rule(
    "ACC010",
    ERROR,
    "silent",
    accelerate("utils/launch.py (prepare_deepspeed_cmd_env exports no nvme path)"),
    reads=("accelerate config",),
)
def nvme_has_a_path(submission: Submission) -> Violations:
    """Offloading to nvme has its path in the DeepSpeed config: accelerate does not pass its own on.

    Prevents: No error from accelerate: DeepSpeed swaps into a folder called none of the working directory.
    Fix: deepspeed_config_file with nvme_path
    """
    for config in _sections(submission):
        for what in ("optimizer", "param"):
            key = f"offload_{what}_device"
            variable = f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_NVME_PATH"
            exported = any(variable in launch.environment for launch in submission.launches)
            named = config.source.value(f"{_AT}/deepspeed_config_file")
            if config.source.value(f"{_AT}/{key}") == "nvme" and not named and not exported:
                message = (
                    f"{key} is nvme, and accelerate 1.15 passes no offload_{what}_nvme_path on: the path is 'none'"
                )
                hint = f"deepspeed_config_file with a nvme_path, or export {variable}"
                yield Violation(where=config.source.locate(f"{_AT}/{key}"), message=message, hint=hint)


@submissions.rule(
    "ACC011", ERROR, "silent", accelerate("commands/launch.py (_validate_launch_command)"), reads=("accelerate config",)
)
def section_is_of_the_type(submission: Submission) -> Violations:
    """A deepspeed_config goes with distributed_type DEEPSPEED, an fsdp_config with FSDP.

    Prevents: No error: training runs without DeepSpeed or FSDP.
    Fix: the distributed_type of the section
    """
    for config in clusters(submission):
        kind = config.source.value("/distributed_type")
        for key, wanted, option in (
            ("deepspeed_config", "DEEPSPEED", "--use_deepspeed"),
            ("fsdp_config", "FSDP", "--use_fsdp"),
            ("megatron_lm_config", "MEGATRON_LM", "--use_megatron_lm"),
        ):
            section = config.source.value(f"/{key}")
            filled = isinstance(section, dict) and bool(section) and kind in DISTRIBUTED_TYPES
            if filled and kind != wanted and not on_the_line(submission, option):
                message = f"{key} with distributed_type {kind}: it is not used"
                hint = f"distributed_type: {wanted}, or take {key} out"
                yield Violation(where=at_key(config.source, f"/{key}"), message=message, hint=hint)


@submissions.rule("HF014", WARNING, "silent", _PLUGIN, reads=("accelerate config", "DeepSpeed config"))
def init_is_for_stage_3(submission: Submission) -> Violations:
    """zero3_init_flag is true under ZeRO stage 3 only.

    Prevents: A warning that the flag is only applicable for ZeRO stage 3, and every rank loads the whole model.
    Fix: zero3_init_flag: false, or stage 3
    """
    for config in _sections(submission):
        source, linked = config.source, submission.config
        stage: object = source.value(f"{_AT}/zero_stage", 2)
        if source.value(f"{_AT}/deepspeed_config_file"):
            stage = linked.stage if linked is not None else None
        if _is_true(source.value(f"{_AT}/zero3_init_flag")) and stage in (0, 1, 2):
            message = f"zero3_init_flag is true under ZeRO stage {stage}: it is set to false"
            yield Violation(
                where=source.locate(f"{_AT}/zero3_init_flag"), message=message, hint="zero3_init_flag: false"
            )


def _is_true(value: object) -> bool:
    return str(value).lower() in _FLAGS[:6]


@_sections.rule(
    "ACC012",
    WARNING,
    "silent",
    accelerate("utils/dataclasses.py") + "; deepspeed/runtime/engine.py reads offload_param at stage 3 only",
)
def parameters_are_offloaded_at_stage_3(config: AccelerateConfig) -> Violations:
    """offload_param_device is cpu or nvme under ZeRO stage 3 only.

    Prevents: No error: less memory is saved than it says.
    Fix: stage 3
    """
    source = config.source
    device, stage = source.value(f"{_AT}/offload_param_device"), source.value(f"{_AT}/zero_stage", 2)
    if device in ("cpu", "nvme") and stage in (0, 1, 2) and not source.value(f"{_AT}/deepspeed_config_file"):
        message = f"offload_param_device {device} under ZeRO stage {stage}: parameters stay on the GPU"
        where = source.locate(f"{_AT}/offload_param_device")
        yield Violation(where=where, message=message, hint="zero_stage: 3, or offload_param_device: none")


@submissions.rule("ACC013", WARNING, "silent", _PLUGIN, reads=("accelerate config", "DeepSpeed config"))
def stage_is_the_configs(submission: Submission) -> Violations:
    """accelerate's zero_stage is that of the DeepSpeed config beside it.

    Prevents: No error: the one that isn't read is the one that was looked at.
    Fix: deepspeed_config_file, and no zero_stage
    """
    linked = submission.config
    for config in _sections(submission) if linked is not None else ():
        stage = config.source.value(f"{_AT}/zero_stage")
        named = config.source.value(f"{_AT}/deepspeed_config_file")
        if type(stage) is int and linked is not None and linked.stage not in (None, stage) and not named:
            message = f"zero_stage is {stage} here and {linked.stage} in {linked.name}: one of them is not used"
            where = config.source.locate(f"{_AT}/zero_stage")
            yield Violation(
                where=where, message=message, hint=f"deepspeed_config_file: {linked.name}, without zero_stage"
            )


_READS: Final = ("accelerate config",)
_BOTH: Final = ("accelerate config", "DeepSpeed config")
