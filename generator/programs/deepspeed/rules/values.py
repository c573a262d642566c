"""Values that DeepSpeed's parser refuses for a key, or that training stops at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ....catalog import closest
from ....findings import Severity
from ....numerals import python_float
from ....places import kind_of_value
from ....rules.violations import listed
from ....shape import Mismatch
from ....submission.repository import sets_key
from ..config import BATCH_KEYS, ZERO
from ..schema import Key, mismatch
from .running import is_endless
from .subjects import FILL, Place, Problem, is_placeholder, is_variable, shown

#: Rules of their own for values that a model refuses, each with its hint: by the key's pointer and
#: what is wrong (`Mismatch.slip`; "" for anything).
_OWN_RULES: Final[Mapping[tuple[str, str], tuple[str, str | None]]] = {
    (f"{ZERO}/stage", ""): ("ZERO001", 'set "stage" to 0, 1, 2 or 3'),
    (f"{ZERO}/offload_optimizer/device", ""): ("ZERO007", 'write "cpu", "nvme" or "none"'),
    (f"{ZERO}/offload_param/device", ""): ("ZERO007", 'write "cpu", "nvme" or "none"'),
    (f"{ZERO}/reduce_bucket_size", "bound"): ("ZERO025", None),
    (f"{ZERO}/allgather_bucket_size", "bound"): ("ZERO025", None),
    (f"{ZERO}/prefetch_bucket_size", "bound"): ("ZERO025", None),
}
#: What to write for a section that is no object; one with a switch is `{"enabled": true}`.
_EXAMPLES: Final = {
    "zero_optimization": '{"stage": 2}',
    "offload_optimizer": '{"device": "cpu"}',
    "offload_param": '{"device": "cpu"}',
    "optimizer": '{"type": "AdamW", "params": {"lr": 1e-4}}',
    "scheduler": '{"type": "WarmupLR", "params": {"warmup_num_steps": 100}}',
    "activation_checkpointing": '{"partition_activations": true}',
    "aio": '{"block_size": 1048576, "queue_depth": 8}',
    "params": '{"lr": 1e-4}',
}
#: Kinds of values in words.
_KIND_WORDS: Final = {
    "null": "null",
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "object": "an object",
}
#: The key of models whose value "auto" DeepSpeed keeps (deepspeed/runtime/config_utils.py
#: `DeepSpeedConfigModel.__init__`).
_KEEPS_AUTO: Final = "replace_method"
#: Keys of mappings that accept "auto": the monitors are read with one model for all four, which
#: drops it (deepspeed/monitor/config.py `get_monitor_config`); for the last it is the default.
_ACCEPTS_AUTO: Final = frozenset(
    {"tensorboard", "wandb", "csv_monitor", "comet", "keep_in_fp32_modules"}
)
#: Where DeepSpeed drops "auto" for one of these, the job does something else than meant.
_DECISIVE: Final = frozenset({"stage", "enabled", "autotp_size", "tp_size"})
#: Numbers that the parser keeps as they are: the stages of ZeRO at which the engine computes with
#: them, and the error that text gives there.
COMPUTED_LATER: Final = {
    "/gradient_clipping": (
        (0, 1, 2, 3),
        "TypeError: '>' not supported between instances of 'str' and 'float'",
    ),
    "/steps_per_print": (
        (0, 1, 2, 3),
        "TypeError: unsupported operand type(s) for %: 'int' and 'str'",
    ),
    "/gradient_predivide_factor": (
        (0, 2, 3),
        "it is not 1.0, which ZeRO refuses, and no number to divide by",
    ),
    # Of releases whose fp16 block is no model: deepspeed/runtime/fp16/loss_scaler.py @ 0.14.5.
    **{
        f"/fp16/{key}": ((), "")
        for key in ("loss_scale", "loss_scale_window", "min_loss_scale", "hysteresis")
    },
}


def of_model(place: Place, key: Key) -> Problem | None:
    """What a model refuses of a value, by type or by its own checks; None where it accepts it."""
    value = place.value
    if value == "auto" and key.name != _KEEPS_AUTO:
        return None if place.config.filled else _dropped(place, key)

    why = mismatch(value, key, pydantic=place.config.schema.pydantic)
    if place.section.pointer == "/fp16":
        of_loss_scaling = _loss_scaling(place, key, why)
        if of_loss_scaling is not None:
            return of_loss_scaling
    if why is None or _is_taken_by_validator(place, key):
        return None
    if key.type.section is not None:
        return _no_object(place, key)
    if place.pointer == "/compile/passes":
        return _passes(place, key)
    message = f"{place.name} must be {why.expected}, not {place.shown}"
    own_rule = _own_rule(place, key, why)
    if own_rule is not None:
        rule, hint = own_rule
        return place.problem(rule, message, hint or _example(key))
    return _refused(place, key, why, message)


def _dropped(place: Place, key: Key) -> Problem:
    """The problem of "auto" where DeepSpeed's models drop it."""
    default = "" if key.default is None else f", {shown(key.default)}"
    message = f'{place.name} is "auto": DeepSpeed drops it and uses its default{default}'
    hint = 'write a value; only Transformers and accelerate fill in "auto" (--consumer huggingface)'
    severity = Severity.ERROR if key.name in _DECISIVE else Severity.NOTE
    return place.problem("PARSE008", message, hint, severity=severity)


def _is_taken_by_validator(place: Place, key: Key) -> bool:
    """Whether a validator of the model converts the value before its type is checked.

    **Source**: deepspeed/runtime/zero/leaf_module_config.py.
    """
    if key.name == "leaf_module" and place.value is None:
        return True
    # one name counts as a list of it
    makes_lists = "_coerce_container_types" in place.section.checks and key.type.name == "list"
    return makes_lists and isinstance(place.value, str)


def _own_rule(place: Place, key: Key, why: Mismatch) -> tuple[str, str | None] | None:
    """The rule on wrong values of this key alone, and its hint; None where it has none."""
    if is_placeholder(place.value):
        return None
    at = f"{place.section.pointer}/{key.name}"
    return _OWN_RULES.get((at, "")) or _OWN_RULES.get((at, why.slip))


def _refused(place: Place, key: Key, why: Mismatch, message: str) -> Problem:
    """The problem of a value that is none of its key's type or range."""
    value = place.value
    if is_placeholder(value):
        return _unfilled(place)
    if why.slip == "fraction" and isinstance(value, float):
        return place.problem("PARSE010", message, answer=math.floor(value))
    if why.slip == "text":
        return _in_quotes(place, message, _example(key))
    return place.problem("PARSE017", message, _example(key))


def of_mapping(place: Place, key: Key) -> Problem | None:
    """What is wrong with a value in a plain mapping, or None.

    DeepSpeed checks no types there, but fails when it reads the value.
    """
    value = place.value
    if place.pointer[1:] in BATCH_KEYS:
        return None if place.config.is_elastic else _of_batch(place)
    if value == "auto" and (key.name in _ACCEPTS_AUTO or place.config.filled):
        return None
    if place.pointer in COMPUTED_LATER:
        return _computed_later(place)
    if place.pointer == ZERO and isinstance(value, bool):
        message = (
            f"`zero_optimization: {place.shown}` is deprecated: DeepSpeed reads it "
            f"as stage {int(value)}"
        )
        return place.problem("ZERO002", message, answer={"stage": int(value)})
    if kind_of_value(value) in key.refuses:
        if key.type.section is not None or key.name == "pipeline":
            return _no_object(place, key)
        if is_placeholder(value):
            return _unfilled(place)
        kinds = (words for kind, words in _KIND_WORDS.items() if kind not in key.refuses)
        accepted = " or ".join(kinds)
        message = f"{place.name} must be {accepted}: DeepSpeed fails on {place.shown}"
        return place.problem("PARSE017", message, None if key.default is None else _example(key))
    missing = [name for name in key.needs if isinstance(value, dict) and name not in value]
    if missing:
        message = f"{place.name} has no `{missing[0]}`, and DeepSpeed fails without it"
        return place.problem("PARSE018", message, f'add "{missing[0]}": false')
    return None


def _unfilled(place: Place) -> Problem:
    message = f"{place.name} is the unfilled placeholder {place.shown}"
    return place.problem("PARSE015", message, FILL)


def _in_quotes(place: Place, message: str, otherwise: str | None) -> Problem:
    """A text in place of a number: the number that it writes is its one fix."""
    number = python_float(str(place.value).strip())
    if number is None or not math.isfinite(number):
        return place.problem("PARSE009", message, otherwise)
    is_whole = number.is_integer() and abs(number) < 2**53  # from there on floats skip integers
    return place.problem("PARSE009", message, answer=int(number) if is_whole else number)


def _example(key: Key) -> str | None:
    """A hint with a value that would pass: the key's default, else one of its type."""
    if key.default is not None:
        return f"write a value such as {shown(key.default)}"
    examples = {
        "bool": "write true or false",
        "int": "write a number without quotes",
        "list": "write a list such as []",
        "dict": "write an object such as {}",
        "str": "write a string in quotes",
    }
    return examples.get(key.type.name)


def _no_object(place: Place, key: Key) -> Problem:
    """The problem of a section that is something else than an object."""
    message, value = f"{place.name} must be an object, not {place.shown}", place.value
    if key.written.startswith("offload") and value in ("cpu", "nvme", "none"):
        return place.problem("PARSE011", message, answer={"device": value})
    if value is True and key.written in ("fp16", "bf16", "bfloat16"):
        return place.problem("PARSE011", message, answer={"enabled": True})
    section = place.config.schema.section(key.type.section or "-")
    keys = () if section is None else tuple(section.keys)
    example = _EXAMPLES.get(key.written, '{"enabled": true}' if "enabled" in keys else None)
    hint = f"write {example or 'an object'}"
    if example is None and keys:
        hint += f" with keys such as {listed(keys[:3])}"
    if value is None or value is False:
        hint = "remove it" if example is None else f"remove it, or {hint}"
    return place.problem("PARSE011", message, hint)


def _passes(place: Place, key: Key) -> Problem:
    """The problem of DeepCompile's passes: they are no list, or the first that is unknown."""
    known = key.type.of[0].values if key.type.of else ()
    passes = [name for name in known if isinstance(name, str)]
    if not isinstance(place.value, list):
        message = f"{place.name} must be a list of passes, not {place.shown}"
        hint = f"write [{shown(place.value if place.value in passes else 'z3')}]"
        return place.problem("PARSE017", message, hint)
    index, value = next(
        (index, name) for index, name in enumerate(place.value) if name not in passes
    )
    near = closest(value, passes) if isinstance(value, str) else None
    all_passes = ", ".join(map(shown, passes))
    if near is None:
        hint = f"use one of {all_passes}"
    else:
        hint = f"did you mean {shown(near)}? The passes are {all_passes}"
    item = Place(
        config=place.config, section=place.section, pointer=f"{place.pointer}/{index}", value=value
    )
    return item.problem("CMP001", f"unknown pass {shown(value)} in {place.name}", hint)


def _of_batch(place: Place) -> Problem | None:
    """Return the problem of a value with which DeepSpeed can't compute a batch."""
    value = place.value
    if value == "auto":
        return None if place.config.filled else _auto_batch(place)
    if is_variable(value):
        return _unfilled(place)
    if isinstance(value, str):
        message = f"{place.name} is the text {place.shown}: DeepSpeed computes with it, and fails"
        return _in_quotes(place, message, "write 1")
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        message = (
            f"{place.name} is {place.shown}: DeepSpeed computes with it, but a "
            "batch has whole samples"
        )
        hint = f"write {max(1, math.floor(value))}"
        return place.problem("PARSE010", message, hint, severity=Severity.WARNING)
    if isinstance(value, list | dict):
        message = f"{place.name} must be an integer, not {place.shown}"
        return place.problem("PARSE017", message, "write 1")
    return None


def _auto_batch(place: Place) -> Problem | None:
    """One problem for all batch keys that are "auto", at the first of them."""
    autos = [key for key in BATCH_KEYS if place.siblings.get(key) == "auto"]
    names = [f"`{key}`" for key in autos if not sets_key(key, place.config.path)]
    if names[:1] != [place.name]:
        return None
    verb = "is" if len(names) == 1 else "are"
    message = (
        f'{", ".join(names)} {verb} "auto", which only Transformers and accelerate fill in; '
        "DeepSpeed fails on it"
    )
    hint = "write a number, or pass --consumer huggingface if the Trainer reads this file"
    return place.problem("PARSE007", message, hint)


def _computed_later(place: Place) -> Problem | None:
    """Return the problem of a value that the parser keeps as it is, and training stops at."""
    value, (stages, error) = place.value, COMPUTED_LATER[place.pointer]
    if place.pointer.startswith("/fp16/") and place.config.value("/fp16/enabled") is False:
        return None
    is_null = value is None and place.pointer == "/gradient_clipping"  # null is no norm
    if is_null or isinstance(value, list | dict):
        message = (
            f"{place.name} must be a number, not {place.shown}: training stops with a TypeError"
        )
        return place.problem("PARSE017", message, "write 0 for never" if is_null else "write 1")
    if not isinstance(value, str) or value == "auto":
        return None
    if is_variable(value):
        return _unfilled(place)
    is_reported = place.pointer == "/steps_per_print" and is_endless(place.config)  # by OPT015
    if is_reported or (place.config.stage or 0) not in stages:
        return None
    message = f"{place.name} is the text {place.shown}: training stops: {error}"
    return _in_quotes(place, message, "write a number without quotes")


def _loss_scaling(place: Place, key: Key, why: Mismatch | None) -> Problem | None:
    """The checks of fp16, which come before those of types.

    **Source**: deepspeed/runtime/precision_config.py.
    """
    value, checks, config = place.value, place.section.checks, place.config
    number = None if why is not None or isinstance(value, bool) else config.number(place.pointer)
    if key.name == "loss_scale":
        is_number = number is not None and number >= 0
        if is_number or "_validate_loss_scale" not in checks:
            return None
        message = (
            f"{place.name} must be a number of at least 0, where 0 is dynamic, not {place.shown}"
        )
        return place.problem("PREC005", message, "write 0")
    if key.name not in ("loss_scale_window", "min_loss_scale"):
        return None

    hint = f"write {shown(key.default)}"
    is_integer = number is not None and not (isinstance(value, str) and "." in value)
    if "_reject_non_integer_scale_params" in checks and not is_integer:  # `int` refuses "8.0"
        return place.problem("PREC006", f"{place.name} must be an integer, not {place.shown}", hint)
    is_dynamic = config.switch("/fp16/enabled") and config.number("/fp16/loss_scale") == 0
    if number is None or number > 0 or not is_dynamic:
        return None
    if "_validate_dynamic_loss_scale_params" not in checks:
        return None
    message = f"{place.name} is {place.shown}: with dynamic loss scaling it must be greater than 0"
    return place.problem("PREC006", message, hint)
