"""Rules on the keys and values of a config: what DeepSpeed's parser refuses, ignores, deprecates.

The walk through a config finds what is wrong with a key or a value by one chain of questions, whose
first answer counts. So a rule's body asks the walk for what it found under the rule's id; `keys`
and `values` have the questions.
"""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8
from ..config import Config
from .subjects import ds_configs
from .walk import problems_of


@ds_configs.rule("PARSE004", WARNING, "silent", deepspeed("runtime/config.py:796-923"))
def top_level_has_no_unknown_keys(config: Config) -> Violations:
    """DeepSpeed has every key of the top level.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or move it to where it belongs"""
    return problems_of(config, "PARSE004")


@ds_configs.rule("PARSE005", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"))
def checked_blocks_have_no_unknown_keys(config: Config) -> Violations:
    """DeepSpeed has every key of a block that it checks.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: correct the key, or remove it"""
    return problems_of(config, "PARSE005")


@ds_configs.rule("PARSE006", WARNING, "silent", deepspeed("runtime/config.py:428-456"))
def unchecked_blocks_have_no_unknown_keys(config: Config) -> Violations:
    """DeepSpeed has every key of a block that it doesn't check.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or remove it"""
    return problems_of(config, "PARSE006")


@ds_configs.rule(
    "PARSE012", ERROR, "parse", deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110")
)
def keys_are_written_by_one_name(config: Config) -> Violations:
    """A key is written by one of its two names.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: keep the name that starts with stage3_"""
    return problems_of(config, "PARSE012")


@ds_configs.rule("PARSE013", ERROR, "parse", deepspeed("runtime/config_utils.py:89-91"))
def deprecated_keys_stand_alone(config: Config) -> Violations:
    """A deprecated key is not written together with the key that replaces it.
    Prevents: AssertionError: Cannot provide deprecated parameter ... and replacing parameter ...
    together
    Fix: remove the deprecated key"""
    return problems_of(config, "PARSE013")


@ds_configs.rule("PREC003", ERROR, "parse", deepspeed("runtime/precision_config.py:41-75"))
def bf16_has_no_keys_of_fp16(config: Config) -> Violations:
    """The bf16 block has none of fp16's keys: bf16 needs no loss scaling.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key; it belongs to fp16"""
    return problems_of(config, "PREC003")


@ds_configs.rule("PREC004", ERROR, "parse", deepspeed("runtime/precision_config.py:100-170"))
def fp16_has_no_keys_of_others(config: Config) -> Violations:
    """The fp16 block has neither Apex's opt_level nor gpt-neox's type.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key"""
    return problems_of(config, "PREC004")


@ds_configs.rule("ZERO005", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def parameters_are_offloaded_by_offload_param(config: Config) -> Violations:
    """Parameters are offloaded by offload_param; no release since 0.9 has cpu_offload_params.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: write "offload_param": {"device": "cpu"}"""
    return problems_of(config, "ZERO005")


@ds_configs.rule("ZERO014", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def aio_is_at_the_top_level(config: Config) -> Violations:
    """The aio block is at the top level, not in zero_optimization.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: move the block to the top level"""
    return problems_of(config, "ZERO014")


@ds_configs.rule("VER001", ERROR, "parse", deepspeed_0_19_8("runtime/config.py:80-141"))
def removed_blocks_are_gone(config: Config) -> Violations:
    """The config has none of the blocks that DeepSpeed removed, enabled or not.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the block"""
    return problems_of(config, "VER001")


@ds_configs.rule("VER002", ERROR, "parse", deepspeed_0_19_8("runtime/config.py:115-130"))
def removed_zero_keys_are_gone(config: Config) -> Violations:
    """zero_optimization has none of the keys that DeepSpeed removed.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the key"""
    return problems_of(config, "VER002")


@ds_configs.rule("VER004", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def keys_belong_to_the_release(config: Config) -> Violations:
    """Every key belongs to the release of DeepSpeed that reads it.
    Prevents: ValidationError: Extra inputs are not permitted; or the setting is silently ignored
    Fix: use a release that has the key, or remove it"""
    return problems_of(config, "VER004")


@ds_configs.rule("ZERO003", NOTE, "silent", deepspeed("runtime/zero/config.py:181-213"))
def offloading_is_written_as_blocks(config: Config) -> Violations:
    """Offloading is written as offload_optimizer and offload_param, not as the deprecated
    cpu_offload.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write offload_optimizer and offload_param"""
    return problems_of(config, "ZERO003")


@ds_configs.rule("ZERO004", NOTE, "silent", deepspeed("runtime/zero/config.py:280-285"))
def no_key_is_deprecated(config: Config) -> Violations:
    """No key is deprecated.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write the key that replaces it"""
    return problems_of(config, "ZERO004")


@ds_configs.rule(
    "PARSE009",
    ERROR,
    "parse",
    deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
)
def numbers_are_not_in_quotes(config: Config) -> Violations:
    """A number is written as a number.
    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at
    the first step
    Fix: write the number without quotes"""
    return problems_of(config, "PARSE009")


@ds_configs.rule("PARSE010", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def integers_have_no_fraction(config: Config) -> Violations:
    """An integer has no fraction.
    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: round it"""
    return problems_of(config, "PARSE010")


@ds_configs.rule(
    "PARSE011",
    ERROR,
    "parse",
    deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"),
)
def blocks_are_objects(config: Config) -> Violations:
    """The config and each of its blocks is an object.
    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: write an object, or leave the block out"""
    return problems_of(config, "PARSE011")


@ds_configs.rule("PARSE017", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"))
def values_have_their_types(config: Config) -> Violations:
    """A value has the type and range of its key.
    Prevents: ValidationError: Input should be a valid ...
    Fix: write a value of the type that the message names"""
    return problems_of(config, "PARSE017")


@ds_configs.rule(
    "PARSE018", ERROR, "parse", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9"
)
def blocks_have_their_needed_keys(config: Config) -> Violations:
    """A block has the keys that DeepSpeed fails without.
    Prevents: KeyError: 'enabled'
    Fix: add the key, or remove the block"""
    return problems_of(config, "PARSE018")


@ds_configs.rule("PARSE007", ERROR, "parse", deepspeed("runtime/config.py:931"))
def batch_keys_are_numbers(config: Config) -> Violations:
    """A batch key is "auto" only where Transformers or accelerate fill it in.
    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: write numbers, or let Transformers or accelerate read the file"""
    return problems_of(config, "PARSE007")


_IGNORES_AUTO: Final = deepspeed("runtime/config_utils.py:54-57")


@ds_configs.rule("PARSE008", ERROR, "silent", _IGNORES_AUTO)
def dropped_keys_are_not_auto(config: Config) -> Violations:
    """A key that DeepSpeed drops where it is "auto" has a value.
    Prevents: The default is used silently: "stage": "auto" trains without ZeRO, "enabled": "auto"
    in fp32.
    Fix: write the value"""
    return problems_of(config, "PARSE008")


@ds_configs.rule("ZERO001", ERROR, "parse", deepspeed("runtime/zero/config.py:81-95"))
def zero_stage_is_known(config: Config) -> Violations:
    """The ZeRO stage is 0, 1, 2 or 3.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: set "stage" to 0, 1, 2 or 3"""
    return problems_of(config, "ZERO001")


@ds_configs.rule("ZERO002", WARNING, "silent", deepspeed("runtime/zero/config.py:60-75"))
def zero_optimization_is_no_bool(config: Config) -> Violations:
    """zero_optimization is an object, not the deprecated true or false.
    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated.
    Fix: write {"stage": 1}"""
    return problems_of(config, "ZERO002")


@ds_configs.rule("ZERO007", ERROR, "parse", deepspeed("runtime/zero/offload_config.py:14-24"))
def offload_device_is_known(config: Config) -> Violations:
    """The device of an offload is "cpu", "nvme" or "none".
    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: write "cpu" or "nvme"
    """
    return problems_of(config, "ZERO007")


@ds_configs.rule("ZERO025", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def buckets_are_positive(config: Config) -> Violations:
    """Bucket sizes are greater than 0.
    Prevents: ValidationError: Input should be greater than 0
    Fix: write a size in elements, such as 500000000"""
    return problems_of(config, "ZERO025")


@ds_configs.rule("PREC005", ERROR, "parse", deepspeed("runtime/precision_config.py:120-132"))
def loss_scale_is_a_number(config: Config) -> Violations:
    """fp16's loss scale is a number of at least 0.
    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: write 0 for dynamic loss scaling"""
    return problems_of(config, "PREC005")


@ds_configs.rule("PREC006", ERROR, "parse", deepspeed("runtime/precision_config.py:165-197"))
def loss_scale_window_is_an_integer(config: Config) -> Violations:
    """fp16's scale window and minimum scale are integers, greater than 0 with dynamic loss scaling.
    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an
    integer
    Fix: leave both out, or write 1000 and 1"""
    return problems_of(config, "PREC006")


@ds_configs.rule(
    "CMP001",
    ERROR,
    "parse",
    deepspeed_0_19_8("compile/config.py:9; compile/config.py:76"),
    since=(0, 18, 9),
)
def compile_passes_are_known(config: Config) -> Violations:
    """Each pass is one of DeepCompile's.
    Prevents: `ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`
    Fix: use a known pass"""
    return problems_of(config, "CMP001")
