"""Keys that the release of DeepSpeed doesn't know: refused, ignored, removed, or of another release."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from ....documents.deepspeed_schema import (
    DeepSpeedSchema,
    Section,
    first_version_of,
    last_version_of,
    load_schema,
    table_for,
    versions,
)
from ....findings import Severity
from ....job.pointer import escape
from ....job.wording import printable
from .mend import moved, taken_out
from .problem import Problem, named

#: More in one section tell nothing new, and each costs a search for what was meant.
_MOST: Final = 50
#: Mappings whose keys are checked by what they are handed to, and by other rules.
_HANDED_ON: Final = frozenset({"/optimizer/params", "/scheduler/params"})
#: A mapping that is taken whole, but read for its own keys only (deepspeed/runtime/pipe/engine.py).
_TAKEN_BUT_CLOSED: Final = frozenset({"/pipeline", "/data_efficiency/data_sampling"})
#: Known misplaced or misnamed keys: what to write instead.
_INSTEAD: Final[Mapping[str, str]] = {
    "micro_batch_size_per_gpu": "`train_micro_batch_size_per_gpu`",
    "micro_batch_size": "`train_micro_batch_size_per_gpu`",
    "train_micro_batch_size": "`train_micro_batch_size_per_gpu`",
    "global_batch_size": "`train_batch_size`",
    "max_grad_norm": "`gradient_clipping`",
    "grad_clip": "`gradient_clipping`",
    "zero_stage": '`"zero_optimization": {"stage": ...}`',
    "offload_optimizer_device": '`"offload_optimizer": {"device": ...}` within zero_optimization',
    "offload_param_device": '`"offload_param": {"device": ...}` within zero_optimization',
    "cpu_offload_params": '`"offload_param": {"device": "cpu"}`',
}
_FOR_FP16_ONLY: Final = "/fp16"


def unknown_keys(
    pointer: str, data: Mapping[str, Any], section: Section, schema: DeepSpeedSchema, version: tuple[int, ...]
) -> Iterator[Problem]:
    """A problem for each key that the section doesn't know."""
    if section.pointer in _HANDED_ON:
        return
    told = 0
    for name, value in data.items():
        if name in section.keys or told == _MOST or (section.kind == "model" and (value == "auto" or name == "strict")):
            continue  # DeepSpeed's models leave out what is "auto", whatever its key, and take `strict` for themselves
        problem = _unknown(f"{pointer}/{escape(name)}", name, section, schema, version)
        if problem is not None:
            told += 1
            yield problem


def _unknown(
    place: str, name: str, section: Section, schema: DeepSpeedSchema, version: tuple[int, ...]
) -> Problem | None:
    if name in schema.removed.get(section.pointer, ()):
        return _removed(place, name, section, version)
    refused = section.kind == "model" and section.extra == "forbidden"
    if not refused and (name.startswith(("_", "//", "#")) or name.lower() in ("comment", "comments", "$schema")):
        return None  # a remark
    if section.extra == "taken" and section.pointer not in _TAKEN_BUT_CLOSED:
        return None
    if section.pointer == "/optimizer" and _is_parameter(name, schema):
        return None  # the rules of optimizers say it better
    if section.pointer == "/pipeline" or place == "/max_grad_norm":
        return None  # as do those of pipelines and of clipping
    other = _of_another_release(place, name, section, version, refused)
    if other is not None:
        return other
    rule = _rule(name, section, schema) if refused else "PARSE006" if section.pointer else "PARSE004"
    where = named(section.pointer) if section.pointer else "a DeepSpeed config"
    effect = "and DeepSpeed refuses it" if refused else "and DeepSpeed ignores it without a word"
    message = f"`{printable(name)[:80]}` is no key of {where}, {effect}"
    if rule in ("PREC003", "PREC004"):
        hint = "take it out; it belongs to fp16" if rule == "PREC003" else "take it out"
        return Problem(rule=rule, pointer=place, message=message, hint=hint, at_key=True, mend=taken_out(place))
    hint, home = _meant(name, section, schema)
    mend = None if home is None else moved(place, home, name)
    return Problem(rule=rule, pointer=place, message=message, hint=hint, at_key=True, mend=mend)


def _removed(place: str, name: str, section: Section, version: tuple[int, ...]) -> Problem:
    last = last_version_of(section.pointer, name)
    until = f"; {_dots(last)} is the last release to take it" if last else ""
    what = f"`{name}`" if not section.pointer else f"`{name}` of {named(section.pointer)}"
    message = f"DeepSpeed {_dots(version)} refuses {what}, whatever it says: it was removed{until}"
    rule, hint = "VER002" if section.pointer else "VER001", _after_removal(name, last)
    return Problem(rule=rule, pointer=place, message=message, hint=hint, at_key=True, mend=taken_out(place))


def _after_removal(name: str, last: tuple[int, ...] | None) -> str:
    return {
        "elasticity": f"take it out and write train_batch_size, or stay on DeepSpeed {_dots(last)}",
        "amp": 'take it out; `"bf16": {"enabled": true}` trains in mixed precision',
        "curriculum_learning": "write it under `data_efficiency.data_sampling.curriculum_learning`",
        "mics_shard_size": "take it out; `zero_hpz_partition_size` keeps parameters within a node",
    }.get(name, "take it out")


def _rule(name: str, section: Section, schema: DeepSpeedSchema) -> str:
    """The rule for a key that a model refuses."""
    if section.pointer in ("/bf16", "/bfloat16"):
        fp16 = schema.section(_FOR_FP16_ONLY)
        return "PREC003" if fp16 is not None and name in fp16.keys else "PARSE005"
    if section.pointer == _FOR_FP16_ONLY and name in ("opt_level", "type"):
        return "PREC004"
    if section.pointer == "/zero_optimization":
        return {"cpu_offload_params": "ZERO005", "aio": "ZERO014"}.get(name, "PARSE005")
    return "PARSE005"


def _of_another_release(
    place: str, name: str, section: Section, version: tuple[int, ...], refused: bool
) -> Problem | None:
    """A key that another release has in this place."""
    first, last = first_version_of(section.pointer, name), last_version_of(section.pointer, name)
    if first is None or last is None:
        return None
    newer = first > table_for(version)
    before = max((known for known in versions() if known < first), default=first)
    # Of a minor version only the last release has a table, so the key may have come with an earlier one.
    since = f"0.{first[1]}" if before[:2] != first[:2] else _dots(first)
    where = f" of {named(section.pointer)}" if section.pointer else ""
    message = f"DeepSpeed {_dots(version)} {'refuses' if refused else 'ignores'} `{printable(name)}`{where}: "
    message += f"it came with {since}" if newer else f"{_dots(last)} was the last release to know it"
    hint = (
        f"take it out, or use DeepSpeed {since} or later" if newer else f"take it out, or use DeepSpeed {_dots(last)}"
    )
    severity = Severity.ERROR if refused else Severity.WARNING
    return Problem(rule="VER004", pointer=place, message=message, hint=hint, severity=severity, at_key=True)


def _meant(name: str, section: Section, schema: DeepSpeedSchema) -> tuple[str, str | None]:
    """What the key was probably meant to be; and the section it belongs to, where that is certain."""
    if name in _INSTEAD:
        return f"write {_INSTEAD[name]}", None
    homes = _homes(schema.version).get(name, ())
    if homes:
        places = " or ".join(f"under {named(home)}" if home else "at the top level" for home in homes)
        return f"write it {places}", homes[0] if len(homes) == 1 else None
    known = section.known_names()
    near = difflib.get_close_matches(name[:80].lower(), known, n=1)  # at least six tenths alike
    if near:
        return f"did you mean `{near[0]}`?", None
    return f"take it out; the keys here are {', '.join(known)}" if len(known) <= 12 else "take it out", None


@cache
def _homes(version: tuple[int, ...]) -> Mapping[str, tuple[str, ...]]:
    """The sections that have a key of a name; names of many sections, such as `enabled`, are left out."""
    schema = load_schema(version)
    homes: dict[str, tuple[str, ...]] = {}
    for pointer in schema.pointers:
        section = schema.section(pointer)
        for name in section.keys if section is not None and pointer != "/bfloat16" else ():
            homes[name] = (*homes.get(name, ()), pointer)
    return {name: places for name, places in homes.items() if len(places) <= 2}


def _is_parameter(name: str, schema: DeepSpeedSchema) -> bool:
    return any(name in (parameters or ()) for parameters in schema.optimizers.values())


def _dots(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version or ()))
