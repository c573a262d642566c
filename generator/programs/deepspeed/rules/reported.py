"""The rules on the keys of a config and their values, which the walk through its sections reports."""

from __future__ import annotations

from ....findings import ERROR, WARNING
from ....rules.sources import deepspeed, deepspeed_now
from .walk import reported


@reported("PARSE004", WARNING, "silent", deepspeed("runtime/config.py:796-923"))
def top_level_keys_are_known() -> None:
    """DeepSpeed knows every key of the top level.

    Prevents: The setting is silently ignored.
    Fix: correct the key, or move it to where it belongs"""


@reported("PARSE005", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"))
def keys_of_models_are_known() -> None:
    """DeepSpeed knows every key of a block that it checks.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: correct the key, or remove it"""


@reported("PARSE006", WARNING, "silent", deepspeed("runtime/config.py:428-456"))
def keys_of_mappings_are_known() -> None:
    """DeepSpeed knows every key of a block that it doesn't check.

    Prevents: The setting is silently ignored.
    Fix: correct the key, or remove it"""


@reported("PARSE012", ERROR, "parse", deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110"))
def keys_have_one_name() -> None:
    """A key is written by one of its two names.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: keep the name that starts with stage3_"""


@reported("PARSE013", ERROR, "parse", deepspeed("runtime/config_utils.py:89-91"))
def deprecated_keys_are_alone() -> None:
    """A deprecated key is not written together with the key that replaces it.

    Prevents: AssertionError: Cannot provide deprecated parameter ... and replacing parameter ... together
    Fix: remove the deprecated key"""


@reported("PREC003", ERROR, "parse", deepspeed("runtime/precision_config.py:41-75"))
def bf16_has_no_loss_scale() -> None:
    """The bf16 block has none of fp16's keys: bf16 needs no loss scaling.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key; it belongs to fp16"""


@reported("PREC004", ERROR, "parse", deepspeed("runtime/precision_config.py:100-170"))
def fp16_has_no_apex_keys() -> None:
    """The fp16 block has neither Apex's opt_level nor gpt-neox's type.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key"""


@reported("ZERO005", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def parameters_are_offloaded_by_name() -> None:
    """Parameters are offloaded by offload_param; no release has cpu_offload_params.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: write "offload_param": {"device": "cpu"}"""


@reported("ZERO014", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def aio_is_at_the_top() -> None:
    """The aio block is at the top level, not in zero_optimization.

    Prevents: ValidationError: Extra inputs are not permitted
    Fix: move the block to the top level"""


@reported("VER001", ERROR, "parse", deepspeed_now("runtime/config.py:80-141"))
def blocks_still_exist() -> None:
    """The config has none of the blocks that DeepSpeed removed, enabled or not.

    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the block"""


@reported("VER002", ERROR, "parse", deepspeed_now("runtime/config.py:115-130"))
def zero_keys_still_exist() -> None:
    """zero_optimization has none of the keys that DeepSpeed removed.

    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the key"""


@reported("VER004", ERROR, "parse", deepspeed("runtime/config_utils.py:110"))
def keys_are_of_this_release() -> None:
    """Every key belongs to the release of DeepSpeed that reads it.

    Prevents: ValidationError: Extra inputs are not permitted; or the setting is silently ignored
    Fix: use a release that has the key, or remove it"""


@reported("ZERO003", WARNING, "silent", deepspeed("runtime/zero/config.py:181-213"))
def offload_is_written_anew() -> None:
    """Offloading is written as offload_optimizer and offload_param, not as the deprecated cpu_offload.

    Prevents: A warning in the log, and an error in a later release.
    Fix: write offload_optimizer and offload_param"""


@reported("ZERO004", WARNING, "silent", deepspeed("runtime/zero/config.py:280-285"))
def keys_are_not_deprecated() -> None:
    """No key is deprecated.

    Prevents: A warning in the log, and an error in a later release.
    Fix: write the key that replaces it"""


@reported(
    "PARSE009",
    ERROR,
    "parse",
    deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554"),
)
def numbers_are_no_text() -> None:
    """A number is written as a number.

    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at the first step
    Fix: write the number without quotes"""


@reported("PARSE010", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def whole_numbers_are_whole() -> None:
    """An integer has no fraction.

    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: round it"""


@reported("PARSE011", ERROR, "parse", deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"))
def blocks_are_objects() -> None:
    """The config and each of its blocks is an object.

    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: write an object, or leave the block out"""


@reported("PARSE017", ERROR, "parse", deepspeed("runtime/config_utils.py:105-113"))
def values_have_their_type() -> None:
    """A value has the type and range of its key.

    Prevents: ValidationError: Input should be a valid ...
    Fix: write a value of the type that the message names"""


@reported("PARSE018", ERROR, "parse", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9")
def blocks_have_what_they_need() -> None:
    """A block has the keys that DeepSpeed fails without.

    Prevents: KeyError: 'enabled'
    Fix: add the key, or remove the block"""


@reported("PARSE007", ERROR, "parse", deepspeed("runtime/config.py:931"))
def batch_is_not_auto() -> None:
    """A batch key is "auto" only where Transformers or accelerate fill it in.

    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: write numbers, or let Transformers or accelerate read the file"""


@reported("PARSE008", ERROR, "silent", deepspeed("runtime/config_utils.py:54-57"))
def model_is_not_auto() -> None:
    """A key that DeepSpeed drops where it is "auto" has a value.

    Prevents: The default is used silently: "stage": "auto" trains without ZeRO, "enabled": "auto" in fp32.
    Fix: write the value"""


@reported("ZERO001", ERROR, "parse", deepspeed("runtime/zero/config.py:81-95"))
def stage_is_known() -> None:
    """The ZeRO stage is 0, 1, 2 or 3.

    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: set "stage" to 0, 1, 2 or 3"""


@reported("ZERO002", WARNING, "silent", deepspeed("runtime/zero/config.py:60-75"))
def stage_is_written() -> None:
    """zero_optimization is an object, not the deprecated true or false.

    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated.
    Fix: write {"stage": 1}"""


@reported("ZERO007", ERROR, "parse", deepspeed("runtime/zero/offload_config.py:14-24"))
def offload_device_is_known() -> None:
    """The device of an offload is "cpu", "nvme" or "none".

    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: write "cpu" or "nvme"
    """


@reported("ZERO025", ERROR, "parse", deepspeed("runtime/zero/config.py:113"))
def buckets_are_positive() -> None:
    """Bucket sizes are greater than 0.

    Prevents: ValidationError: Input should be greater than 0
    Fix: write a size in elements, such as 500000000"""


@reported("PREC005", ERROR, "parse", deepspeed("runtime/precision_config.py:120-132"))
def loss_scale_is_a_number() -> None:
    """fp16's loss scale is a number of at least 0.

    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: write 0 for dynamic loss scaling"""


@reported("PREC006", ERROR, "parse", deepspeed("runtime/precision_config.py:165-197"))
def dynamic_loss_scale_has_bounds() -> None:
    """fp16's scale window and minimum scale are integers, greater than 0 with dynamic loss scaling.

    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an integer
    Fix: leave both out, or write 1000 and 1"""


@reported("CMP001", ERROR, "parse", deepspeed_now("compile/config.py:9; compile/config.py:76"), since=(0, 18, 9))
def passes_are_known() -> None:
    """Each pass is one of DeepCompile's.

    Prevents: `ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`
    Fix: use a known pass"""
