"""The text of a DeepSpeed config, and its keys."""

from __future__ import annotations

import re

from ....facts.hjson.edits import to_strict
from ....findings import ERROR, WARNING, Severity, Violation, Violations, printable
from ....rules.sources import deepspeed, deepspeed_now
from ...subjects import ds_configs
from ..config import Config
from .problem import edits_of
from .templates import bare_placeholders, leftover
from .walk import reported


@ds_configs.rule("PARSE001", ERROR, "parse", deepspeed("runtime/config_utils.py:205-211"))
def keys_are_once(config: Config) -> Violations:
    """An object of the config has each key once.

    Prevents: ValueError: Duplicate keys in DeepSpeed config
    Fix: keep one of the two"""
    effect, severity = "DeepSpeed refuses the config", None
    if config.consumer != "deepspeed":
        effect, severity = "the last one is used, silently", Severity.WARNING
    for duplicate in config.json.duplicates:
        key = printable(duplicate.pointer.rpartition("/")[2])[:80]
        line = config.json.lines.locate(duplicate.first).line
        where = config.json.lines.locate(duplicate.second, duplicate.pointer)
        message = f"duplicate key `{key}`, first on line {line}: {effect}"
        yield Violation(where, message, "keep one of them", severity=severity)


@ds_configs.rule("PARSE002", WARNING, "parse", deepspeed("runtime/config.py:699"))
def text_is_json(config: Config) -> Violations:
    """The config is JSON, which every program that may read it understands.

    Prevents: json.JSONDecodeError in Transformers, accelerate and Megatron-DeepSpeed, which read strict JSON
    Fix: write strict JSON"""
    slips = config.json.deviations
    if config.json.broken is not None or not slips or config.is_empty or any(bare_placeholders(config)):
        return
    more = len(slips) - 1
    rest = f" (and {more} more place{'s' if more > 1 else ''})" if more else ""
    message = f"{slips[0].what} is HJSON, not JSON{rest}: DeepSpeed reads it,"
    strict = "Transformers, accelerate and Megatron-DeepSpeed don't"
    others = "Lightning doesn't" if config.consumer == "lightning" else strict
    message += f" {others}"
    yield Violation(
        config.json.lines.locate(slips[0].start),
        message,
        "write strict JSON: double quotes, commas between members only, no comments",
        severity=Severity.WARNING if config.guessed or config.consumer == "deepspeed" else Severity.ERROR,
        edits=() if any(slip.what == "a comment" for slip in slips) else edits_of(config, to_strict),
    )


@ds_configs.rule("PARSE016", ERROR, "parse", deepspeed("runtime/config.py:699"))
def text_can_be_read(config: Config) -> Violations:
    """The config is well-formed for the program that reads it.

    Prevents: HjsonDecodeError, or json.JSONDecodeError
    Fix: correct the text at the place named"""
    broken = config.json.hjson_broken if config.consumer == "deepspeed" else config.json.broken
    if config.is_empty:
        hint = 'write {"train_batch_size": 256, "bf16": {"enabled": true}}'
        yield Violation(config.locate(""), "the file is empty: there is no config in it", hint)
    elif broken is not None and leftover(config) is None:
        where = config.json.lines.locate(broken.offset)
        yield Violation(where, f"the config can't be read: {broken.message}", _correction(broken.message))


def _correction(message: str) -> str:
    """What would let the text be read."""
    opened = re.search(r"the `([{\[])` in line \d+ is not closed", message)
    if opened:
        return f"add the missing `{'}' if opened[1] == '{' else ']'}`"
    if "quote is missing" in message:
        return 'add the missing `"`'
    if message.startswith("`,` stands"):
        return "remove a comma: there is one too many"
    return "check here: quotes around texts, `:` after a key, one comma between two members, brackets in pairs"


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


@reported("VER001", ERROR, "parse", deepspeed_now("runtime/config.py:80-141"), since=(0, 19, 7))
def blocks_still_exist() -> None:
    """The config has none of the blocks that DeepSpeed removed, enabled or not.

    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the block"""


@reported("VER002", ERROR, "parse", deepspeed_now("runtime/config.py:115-130"), since=(0, 19, 7))
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
