"""Keys that the release of DeepSpeed doesn't know: refused, ignored, removed, or of another release."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Final

from ....facts.hjson.edits import move_member
from ....findings import Severity, printable
from ..schema import (
    DeepSpeedSchema,
    Section,
    Version,
    first_version_of,
    last_version_of,
    load_schema,
    table_for,
    versions,
)
from .problem import Place, Problem, named

#: More in one section tell nothing new, and each costs a search for what was meant.
_MOST: Final = 50
#: Mappings whose keys are checked by what they are handed to, and by other rules.
_HANDED_ON: Final = frozenset({"/optimizer/params", "/scheduler/params"})
#: Mappings that are handed on whole, but only read for their own keys (deepspeed/runtime/pipe/engine.py).
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
    "offload_optimizer_device": '`"offload_optimizer": {"device": ...}` in zero_optimization',
    "offload_param_device": '`"offload_param": {"device": ...}` in zero_optimization',
    "cpu_offload_params": '`"offload_param": {"device": "cpu"}`',
}
#: What to do about a removed key, where removing it is not all.
_AFTER_REMOVAL: Final[Mapping[str, str]] = {
    "elasticity": "remove it and write train_batch_size, or use DeepSpeed {last}",
    "amp": 'remove it; `"bf16": {{"enabled": true}}` trains in mixed precision',
    "curriculum_learning": "write it as `data_efficiency.data_sampling.curriculum_learning`",
    "mics_shard_size": "remove it; `zero_hpz_partition_size` keeps parameters within a node",
}


def unknown_keys(places: Mapping[str, Place], section: Section) -> Iterator[Problem]:
    """A problem for each of a section's keys that it doesn't know."""
    found = 0
    for name, place in places.items() if section.pointer not in _HANDED_ON else ():
        if found == _MOST or (section.kind == "model" and (place.value == "auto" or name == "strict")):
            continue  # DeepSpeed's models leave out what is "auto", whatever its key, and keep `strict` for themselves
        problem = _unknown(place, name)
        if problem is not None:
            found += 1
            yield problem


def _unknown(place: Place, name: str) -> Problem | None:
    section, schema = place.section, place.config.schema
    if name in schema.removed.get(section.pointer, ()):
        return _removed(place, name)
    refused = section.kind == "model" and section.extra == "forbidden"
    if _is_for_others(place, name, refused):
        return None
    other = _of_another_release(place, name, refused)
    if other is not None:
        return other
    rule = _rule(name, section, schema) if refused else "PARSE006" if section.pointer else "PARSE004"
    effect = "refuses" if refused else "silently ignores"
    message = f"unknown key `{printable(name)[:80]}` in {named(section.pointer)}: DeepSpeed {effect} it"
    if rule in ("PREC003", "PREC004"):
        hint = "remove it; it belongs to fp16" if rule == "PREC003" else "remove it"
        return place.problem(rule, message, hint, at_key=True, fix=place.removal)
    hint, home = _meant(name, section, schema)
    fix = None if home is None else partial(move_member, pointer=place.pointer, parent_pointer=home, name=name)
    return place.problem(rule, message, hint, at_key=True, fix=fix)


def _is_for_others(place: Place, name: str, refused: bool) -> bool:
    """Whether the key is a comment, is handed on, or has a rule of its own."""
    section = place.section
    comment = name.startswith(("_", "//", "#")) or name.lower() in ("comment", "comments", "$schema")
    handed_on = section.extra == "taken" and section.pointer not in _TAKEN_BUT_CLOSED
    parameters = place.config.schema.optimizers.values() if section.pointer == "/optimizer" else ()
    parameter = any(name in (known or ()) for known in parameters)
    own_rule = section.pointer == "/pipeline" or place.pointer == "/max_grad_norm"
    return (comment and not refused) or handed_on or parameter or own_rule


def _removed(place: Place, name: str) -> Problem:
    section, version = place.section.pointer, place.config.version
    last = last_version_of(section, name)
    until = f"; {_until(last)}" if last else ""
    what = f"`{name}`" if not section else f"`{name}` in {named(section)}"
    message = f"DeepSpeed {_dots(version)} refuses {what}, whatever its value: it was removed{until}"
    hint = _AFTER_REMOVAL.get(name, "remove it").format(last=_dots(last))
    rule = "VER002" if section else "VER001"
    return place.problem(rule, message, hint, at_key=True, fix=place.removal, until=last)


def _until(last: Version) -> str:
    """When a key went, as far as the tables tell: they skip releases."""
    after = next((known for known in versions() if known > last), None)
    if after is None or after == (*last[:-1], last[-1] + 1):
        return f"{_dots(last)} is the last release that accepts it"
    return f"{_dots(last)} accepts it, and {_dots(after)} doesn't"


def _rule(name: str, section: Section, schema: DeepSpeedSchema) -> str:
    """The rule for a key that a model refuses."""
    if section.pointer in ("/bf16", "/bfloat16"):
        return "PREC003" if schema.key(f"/fp16/{name}") is not None else "PARSE005"
    if section.pointer == "/fp16" and name in ("opt_level", "type"):
        return "PREC004"
    if section.pointer == "/zero_optimization":
        return {"cpu_offload_params": "ZERO005", "aio": "ZERO014"}.get(name, "PARSE005")
    return "PARSE005"


def _of_another_release(place: Place, name: str, refused: bool) -> Problem | None:
    """A key that another release has in this place."""
    section, version = place.section.pointer, place.config.version
    first, last = first_version_of(section, name), last_version_of(section, name)
    if first is None or last is None:
        return None
    newer = first > table_for(version)
    before = max((known for known in versions() if known < first), default=first)
    # Of a minor version only the last release has a table, so the key may have come with an earlier one.
    since = f"0.{first[1]}" if before[:2] != first[:2] else _dots(first)
    where = f" in {named(section)}" if section else ""
    message = f"DeepSpeed {_dots(version)} {'refuses' if refused else 'ignores'} `{printable(name)}`{where}: "
    message += f"it was added in {since}" if newer else _until(last)
    hint = f"remove it, or use DeepSpeed {f'{since} or later' if newer else _dots(last)}"
    severity = Severity.ERROR if refused else Severity.WARNING
    return place.problem("VER004", message, hint, severity=severity, at_key=True, until=None if newer else last)


def _meant(name: str, section: Section, schema: DeepSpeedSchema) -> tuple[str, str | None]:
    """What the key was probably meant to be; and the section it belongs to, where that is certain."""
    if name in _INSTEAD:
        return f"write {_INSTEAD[name]}", None
    homes = _homes(schema.version).get(name, ())
    if homes:
        places = " or ".join(f"in {named(home)}" if home else "at the top level" for home in homes)
        return f"write it {places}", homes[0] if len(homes) == 1 else None
    known = section.known_names()
    near = difflib.get_close_matches(name[:80].lower(), known, n=1)  # at least six tenths alike
    if near:
        return f"did you mean `{near[0]}`?", None
    return f"remove it; the keys here are {', '.join(known)}" if len(known) <= 12 else "remove it", None


@cache
def _homes(version: Version) -> Mapping[str, tuple[str, ...]]:
    """The sections that have a key of a name; names of many sections, such as `enabled`, are left out."""
    schema = load_schema(version)
    homes: dict[str, tuple[str, ...]] = {}
    for pointer in schema.pointers:
        section = schema.section(pointer)
        for name in section.keys if section is not None and pointer != "/bfloat16" else ():
            homes[name] = (*homes.get(name, ()), pointer)
    return {name: places for name, places in homes.items() if len(places) <= 2}


def _dots(version: Version | None) -> str:
    return ".".join(map(str, version or ()))
