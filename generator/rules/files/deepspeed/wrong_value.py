"""Values that DeepSpeed's parser refuses for a key, sorted by the rule that says what is wrong with them."""

from __future__ import annotations

import json
import math
from typing import Final

from ....catalog import closest
from ....documents.deepspeed_config import BATCH_KEYS
from ....documents.deepspeed_schema import DeepSpeedSchema, Key, Section
from ....documents.lax_types import Mismatch, expected
from .mend import Mend, written
from .problem import Problem, is_placeholder, kind_of, named, shown

_EXAMPLES: Final = {
    "fp16": '{"enabled": true}',
    "bf16": '{"enabled": true}',
    "bfloat16": '{"enabled": true}',
    "zero_optimization": '{"stage": 2}',
    "offload_optimizer": '{"device": "cpu"}',
    "offload_param": '{"device": "cpu"}',
    "optimizer": '{"type": "AdamW", "params": {"lr": 1e-4}}',
    "scheduler": '{"type": "WarmupLR", "params": {"warmup_num_steps": 100}}',
    "comms_logger": '{"enabled": true}',
    "activation_checkpointing": '{"partition_activations": true}',
    "aio": '{"block_size": 1048576, "queue_depth": 8}',
    "checkpoint": '{"tag_validation": "Warn"}',
    "compile": '{"deepcompile": true}',
    "data_types": '{"grad_accum_dtype": "fp32"}',
    "leaf_module": '{"classes": ["MixtralSparseMoeBlock"]}',
    "params": '{"lr": 1e-4}',
    "parallel_write": '{"pipeline_stage": true}',
    "pipeline": '{"stages": "auto"}',
    "tensor_parallel": '{"autotp_size": 2}',
    "tp": '{"tp_size": 2}',
    "writer": '{"type": "FAST"}',
    "zenflow": '{"topk_ratio": 0.1}',
}
_LISTED: Final = {"null": "null", "bool": "true or false", "int": "a whole number", "float": "a number"} | {
    "str": "text",
    "list": "a list",
    "object": "an object",
}


def wrong_value(place: str, value: object, key: Key, section: Section, why: Mismatch | None) -> Problem | None:
    """The problem of a value that a model refuses, by its type (`why`) or its own checks; None where it takes it."""
    special = _loss_scaling(place, value, key, section)
    if special is not None:
        return special
    if why is None or (key.name == "leaf_module" and value is None) or _is_taken_as_list(value, key, section):
        return None
    if key.type.section is not None:
        return _no_object(place, value, key, why.expected)
    if section.pointer == "/compile" and key.name == "passes":
        return _passes(place, value, key)
    rule, hint = _model_rule(value, key, section, why)
    message = f"{named(place)} takes {_what(key, why)}; this is {shown(value)}"
    mend = _as_written(place, hint) if rule in ("PARSE009", "PARSE010") and hint is not None else None
    return Problem(rule=rule, pointer=place, message=message, hint=hint, mend=mend)


def _passes(place: str, value: object, key: Key) -> Problem:
    """DeepCompile's passes: the unknown one by its name."""
    known = [name for name in key.type.of[0].values if isinstance(name, str)] if key.type.of else []
    if not isinstance(value, list):
        hint = f"[{shown(value)}]" if value in known else '["z3"]'
        message = f"{named(place)} takes a list of passes; this is {shown(value)}"
        return Problem(rule="PARSE017", pointer=place, message=message, hint=hint)
    odd = next(index for index, name in enumerate(value) if name not in known)
    near = closest(value[odd], known) if isinstance(value[odd], str) else None
    message = f"{named(place)} has {shown(value[odd])}, which is no pass of DeepCompile"
    listed = ", ".join(shown(name) for name in known)
    hint = f"one of {listed}" if near is None else f"did you mean {shown(near)}? The passes are {listed}"
    return Problem(rule="CMP001", pointer=f"{place}/{odd}", message=message, hint=hint)


def _as_written(place: str, value: str) -> Mend | None:
    """The JSON text `value` in place of what is there; None for a hint in words."""
    try:
        return written(place, json.loads(value))
    except ValueError:
        return None


def _is_taken_as_list(value: object, key: Key, section: Section) -> bool:
    """A leaf module's one name counts as a list of it (deepspeed/runtime/zero/leaf_module_config.py)."""
    return "_coerce_container_types" in section.checks and isinstance(value, str) and key.type.name == "list"


def _what(key: Key, why: Mismatch) -> str:
    return why.expected if why.slip == "bound" else expected(key)


def _model_rule(value: object, key: Key, section: Section, why: Mismatch) -> tuple[str, str | None]:
    """The rule that a refused value breaks, and what would pass."""
    hint = _example(key)
    if is_placeholder(value):
        return "PARSE015", "fill the template in before the job starts; DeepSpeed expands no variables"
    if section.pointer == "/zero_optimization" and key.name == "stage":
        return "ZERO001", "0, 1, 2 or 3"
    if key.name == "device" and section.pointer.startswith("/zero_optimization/offload"):
        return "ZERO007", '"cpu", "nvme" or "none"'
    if why.slip == "bound" and key.name.endswith("bucket_size"):
        return "ZERO025", hint
    if why.slip == "fraction" and isinstance(value, float) and math.isfinite(value):
        return "PARSE010", str(math.floor(value))
    if why.slip == "text" and key.type.name in ("int", "float"):
        return "PARSE009", number_in(value) or hint
    return "PARSE017", hint


def _example(key: Key) -> str | None:
    """A value that would pass."""
    if key.default is not None:
        return f"such as {shown(key.default)}"
    examples = {"bool": "true or false", "int": "a number without quotes", "list": "[]", "dict": "{}", "str": '"text"'}
    return examples.get(key.type.name)


def number_in(value: object) -> str | None:
    """The number that a text says, as JSON writes it."""
    try:
        number = float(str(value).strip())
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _no_object(place: str, value: object, key: Key, what: str = "an object") -> Problem:
    message = f"{named(place)} takes {what}; this is {shown(value)}"
    example = _EXAMPLES.get(key.written)
    if key.written.startswith("offload") and value in ("cpu", "nvme", "none"):
        hint = f'{{"device": {shown(value)}}}'
        return Problem(rule="PARSE011", pointer=place, message=message, hint=hint, mend=_as_written(place, hint))
    if value is True and key.written in ("fp16", "bf16", "bfloat16"):
        hint = '{"enabled": true}'
        return Problem(rule="PARSE011", pointer=place, message=message, hint=hint, mend=_as_written(place, hint))
    hint = example or '{"enabled": true}'
    if value is None or value is False:
        hint = "take it out" if example is None else f"take it out, or write {example}"
    return Problem(rule="PARSE011", pointer=place, message=message, hint=hint)


def refused(place: str, value: object, key: Key, schema: DeepSpeedSchema) -> Problem | None:
    """The problem of a value in a plain mapping: DeepSpeed checks no types there, but its reading fails on it."""
    if place[1:] in BATCH_KEYS:  # which have rules of their own
        return None
    kind = kind_of(value)
    if kind in key.refuses:
        if key.type.section is not None or key.name == "pipeline":
            return _no_object(place, value, key)
        if is_placeholder(value):
            filled = "fill the template in before the job starts; DeepSpeed expands no variables"
            message = f"{named(place)} is {shown(value)}, which nothing filled in"
            return Problem(rule="PARSE015", pointer=place, message=message, hint=filled)
        takes = " or ".join(words for name, words in _LISTED.items() if name not in key.refuses)
        message = f"{named(place)} takes {takes}; DeepSpeed fails on {shown(value)}"
        hint = f"such as {shown(key.default)}" if key.default is not None else None
        return Problem(rule="PARSE017", pointer=place, message=message, hint=hint)
    missing = [name for name in key.needs if isinstance(value, dict) and name not in value]
    if missing:
        message = f"{named(place)} has no `{missing[0]}`, and DeepSpeed fails without it"
        return Problem(rule="PARSE018", pointer=place, message=message, hint=f'"{missing[0]}": false')
    return None


def _loss_scaling(place: str, value: object, key: Key, section: Section) -> Problem | None:
    """The checks of fp16's own (deepspeed/runtime/precision_config.py) come before the types'."""
    if section.pointer != "/fp16":
        return None
    if key.name == "loss_scale" and "_validate_loss_scale" in section.checks:
        number = _float(value)
        if number is None or not math.isfinite(number) or number < 0:
            message = f"`fp16.loss_scale` takes a number of at least 0, where 0 is dynamic; this is {shown(value)}"
            return Problem(rule="PREC005", pointer=place, message=message, hint="0")
    if (
        key.name in ("loss_scale_window", "min_loss_scale")
        and "_reject_non_integer_scale_params" in section.checks
        and not _is_whole(value)
    ):
        message = f"{named(place)} takes a whole number; this is {shown(value)}"
        return Problem(rule="PREC006", pointer=place, message=message, hint=shown(key.default))
    return None


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _is_whole(value: object) -> bool:
    """What both DeepSpeed's check and pydantic take for an int."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, float):
        return value.is_integer() and abs(value) < 2.0**63
    if isinstance(value, str):
        return value.strip().isascii() and _is_int_text(value)
    return True


def _is_int_text(value: str) -> bool:
    try:
        int(value)
    except ValueError:
        return False
    return True
