"""The rules on the keys of a config and their values: the walk through its sections finds what breaks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ....findings import ERROR, NOTE, WARNING, Severity, Version, Violation, Violations, When, printable
from ....job.wording import escape
from ....rule import Rule
from ....rules.violations import deepspeed, deepspeed_now
from ...subjects import ds_configs
from ..config import Config
from ..schema import Section, as_hjson
from .keys import removed_later, unknown_key, written_twice
from .subjects import FILL, Place, Problem, leftover, shown
from .values import of_mapping, of_model

#: Unknown keys in one section; more tell nothing new, and each costs a search for what was meant.
_MOST: Final = 50


def problems_of(config: Config) -> tuple[Problem, ...]:
    """Every problem of a config's keys and their values; found once, and kept with the config."""
    kept = vars(config)
    if "_problems" not in kept:
        kept["_problems"] = tuple(_problems(config))
    found: tuple[Problem, ...] = kept["_problems"]
    return found


def _problems(config: Config) -> Iterator[Problem]:
    data, top = config.json.data, config.schema.section("")
    left = leftover(config)
    if left is not None:
        message = f"unfilled placeholder `{printable(left[1])[:80]}`: the config can't be read"
        yield "PARSE015", Violation(config.json.lines.locate(left[0]), message, FILL)
    if config.json.broken is not None or top is None:
        return
    if isinstance(data, dict):
        yield from _of_section(config, data, top)
    else:
        place = Place(config=config, section=top, pointer="", value=data)
        message = f"the config must be an object, not {shown(data)}"
        yield place.problem("PARSE011", message, 'write an object such as {"train_batch_size": 256}')


def _of_section(config: Config, data: Mapping[str, Any], section: Section, pointer: str = "") -> Iterator[Problem]:
    places, unknown = dict[str, Place](), 0
    for name, value in data.items():
        at, key = f"{pointer}/{escape(name)}", section.keys.get(name)
        place = places[name] = Place(config=config, section=section, pointer=at, value=as_hjson(value))
        if key is None:
            problem = unknown_key(place, name) if unknown < _MOST else None
            unknown += problem is not None
        elif at == "/bfloat16" and config.bf16 != at:
            continue
        else:
            problem = of_model(place, key) if section.kind == "model" else of_mapping(place, key)
        inner = config.schema.section(key.type.section) if key is not None and key.type.section is not None else None
        if problem is None and key is not None and (later := removed_later(place, name)) is not None:
            yield later
        if problem is not None:
            yield problem
        elif isinstance(place.value, dict) and inner is not None:
            yield from _of_section(config, place.value, inner, at)
    if section.kind == "model":
        yield from written_twice(places, section)


def _found(
    id: str, source: str, severity: Severity = ERROR, when: When = "parse", *, since: Version = ()
) -> Callable[[str], Rule]:
    """Return what makes a rule, which reports the problems found under its id, of its documentation."""

    def made(text: str) -> Rule:
        def check(config: Config) -> Violations:
            return (found for rule, found in problems_of(config) if rule == id)

        check.__doc__ = text
        return ds_configs.rule(id, severity, when, source, since=since)(check)

    return made


PARSE004: Final = _found("PARSE004", deepspeed("runtime/config.py:796-923"), WARNING, "silent")("""
    DeepSpeed has every key of the top level.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or move it to where it belongs""")
PARSE005: Final = _found("PARSE005", deepspeed("runtime/config_utils.py:105-113"))("""
    DeepSpeed has every key of a block that it checks.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: correct the key, or remove it""")
PARSE006: Final = _found("PARSE006", deepspeed("runtime/config.py:428-456"), WARNING, "silent")("""
    DeepSpeed has every key of a block that it doesn't check.
    Prevents: The setting is silently ignored.
    Fix: correct the key, or remove it""")
PARSE012: Final = _found("PARSE012", deepspeed("runtime/zero/config.py:215, runtime/config_utils.py:110"))("""
    A key is written by one of its two names.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: keep the name that starts with stage3_""")
PARSE013: Final = _found("PARSE013", deepspeed("runtime/config_utils.py:89-91"))("""
    A deprecated key is not written together with the key that replaces it.
    Prevents: AssertionError: Cannot provide deprecated parameter ... and replacing parameter ... together
    Fix: remove the deprecated key""")
PREC003: Final = _found("PREC003", deepspeed("runtime/precision_config.py:41-75"))("""
    The bf16 block has none of fp16's keys: bf16 needs no loss scaling.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key; it belongs to fp16""")
PREC004: Final = _found("PREC004", deepspeed("runtime/precision_config.py:100-170"))("""
    The fp16 block has neither Apex's opt_level nor gpt-neox's type.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: remove the key""")
ZERO005: Final = _found("ZERO005", deepspeed("runtime/config_utils.py:110"))("""
    Parameters are offloaded by offload_param; no release has cpu_offload_params.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: write "offload_param": {"device": "cpu"}""")
ZERO014: Final = _found("ZERO014", deepspeed("runtime/config_utils.py:110"))("""
    The aio block is at the top level, not in zero_optimization.
    Prevents: ValidationError: Extra inputs are not permitted
    Fix: move the block to the top level""")
VER001: Final = _found("VER001", deepspeed_now("runtime/config.py:80-141"))("""
    The config has none of the blocks that DeepSpeed removed, enabled or not.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the block""")
VER002: Final = _found("VER002", deepspeed_now("runtime/config.py:115-130"))("""
    zero_optimization has none of the keys that DeepSpeed removed.
    Prevents: DeepSpeedConfigError: ... has been removed
    Fix: remove the key""")
VER004: Final = _found("VER004", deepspeed("runtime/config_utils.py:110"))("""
    Every key belongs to the release of DeepSpeed that reads it.
    Prevents: ValidationError: Extra inputs are not permitted; or the setting is silently ignored
    Fix: use a release that has the key, or remove it""")
ZERO003: Final = _found("ZERO003", deepspeed("runtime/zero/config.py:181-213"), NOTE, "silent")("""
    Offloading is written as offload_optimizer and offload_param, not as the deprecated cpu_offload.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write offload_optimizer and offload_param""")
ZERO004: Final = _found("ZERO004", deepspeed("runtime/zero/config.py:280-285"), NOTE, "silent")("""
    No key is deprecated.
    Prevents: A warning in the log, and an error in a later release.
    Fix: write the key that replaces it""")
PARSE009: Final = _found(
    "PARSE009", deepspeed("runtime/config.py:937, runtime/zero/config.py:113, runtime/engine.py:3506, :3554")
)("""
    A number is written as a number.
    Prevents: ValidationError: Input should be a valid integer, unable to parse; or a TypeError at the first step
    Fix: write the number without quotes""")
PARSE010: Final = _found("PARSE010", deepspeed("runtime/zero/config.py:113"))("""
    An integer has no fraction.
    Prevents: ValidationError: Input should be a valid integer, got a number with a fractional part
    Fix: round it""")
PARSE011: Final = _found("PARSE011", deepspeed("runtime/zero/config.py:60-80, runtime/precision_config.py:20-50"))("""
    The config and each of its blocks is an object.
    Prevents: TypeError, or ValidationError: Input should be a valid dictionary
    Fix: write an object, or leave the block out""")
PARSE017: Final = _found("PARSE017", deepspeed("runtime/config_utils.py:105-113"))("""
    A value has the type and range of its key.
    Prevents: ValidationError: Input should be a valid ...
    Fix: write a value of the type that the message names""")
PARSE018: Final = _found("PARSE018", "deepspeedai/DeepSpeed deepspeed/runtime/config.py:152-158 @ 0.16.9")("""
    A block has the keys that DeepSpeed fails without.
    Prevents: KeyError: 'enabled'
    Fix: add the key, or remove the block""")
PARSE007: Final = _found("PARSE007", deepspeed("runtime/config.py:931"))("""
    A batch key is "auto" only where Transformers or accelerate fill it in.
    Prevents: TypeError: '>' not supported between instances of 'str' and 'int'
    Fix: write numbers, or let Transformers or accelerate read the file""")
PARSE008: Final = _found("PARSE008", deepspeed("runtime/config_utils.py:54-57"), ERROR, "silent")("""
    A key that DeepSpeed drops where it is "auto" has a value.
    Prevents: The default is used silently: "stage": "auto" trains without ZeRO, "enabled": "auto" in fp32.
    Fix: write the value""")
ZERO001: Final = _found("ZERO001", deepspeed("runtime/zero/config.py:81-95"))("""
    The ZeRO stage is 0, 1, 2 or 3.
    Prevents: ValidationError: Input should be 0, 1, 2 or 3
    Fix: set "stage" to 0, 1, 2 or 3""")
ZERO002: Final = _found("ZERO002", deepspeed("runtime/zero/config.py:60-75"), WARNING, "silent")("""
    zero_optimization is an object, not the deprecated true or false.
    Prevents: A warning in the log: this format of ZeRO optimization setup is deprecated.
    Fix: write {"stage": 1}""")
ZERO007: Final = _found("ZERO007", deepspeed("runtime/zero/offload_config.py:14-24"))("""
    The device of an offload is "cpu", "nvme" or "none".
    Prevents: ValidationError: Input should be 'none', 'cpu' or 'nvme'
    Fix: write "cpu" or "nvme"
    """)
ZERO025: Final = _found("ZERO025", deepspeed("runtime/zero/config.py:113"))("""
    Bucket sizes are greater than 0.
    Prevents: ValidationError: Input should be greater than 0
    Fix: write a size in elements, such as 500000000""")
PREC005: Final = _found("PREC005", deepspeed("runtime/precision_config.py:120-132"))("""
    fp16's loss scale is a number of at least 0.
    Prevents: ValidationError: fp16.loss_scale must be a number
    Fix: write 0 for dynamic loss scaling""")
PREC006: Final = _found("PREC006", deepspeed("runtime/precision_config.py:165-197"))("""
    fp16's scale window and minimum scale are integers, greater than 0 with dynamic loss scaling.
    Prevents: ValidationError: fp16.loss_scale_window must be > 0, or fp16.min_loss_scale must be an integer
    Fix: leave both out, or write 1000 and 1""")
CMP001: Final = _found("CMP001", deepspeed_now("compile/config.py:9; compile/config.py:76"), since=(0, 18, 9))("""
    Each pass is one of DeepCompile's.
    Prevents: `ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`
    Fix: use a known pass""")
