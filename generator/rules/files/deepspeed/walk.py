"""A DeepSpeed config against the tables of keys: every section that DeepSpeed knows, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ....documents.deepspeed_config import Config
from ....documents.deepspeed_schema import DeepSpeedSchema, Key, Section, load_schema
from ....documents.lax_types import mismatch
from ....documents.submission import FILLERS, Submission
from ....findings import Severity
from ....job.pointer import escape
from .mend import Mend, renamed, rewritten, taken_out
from .problem import Problem, as_hjson, named, shown
from .unknown import unknown_keys
from .wrong_value import refused, wrong_value

#: Whose value `"auto"` DeepSpeed keeps (deepspeed/runtime/config_utils.py `DeepSpeedConfigModel.__init__`).
_KEEPS_AUTO: Final = "replace_method"
#: Keys of mappings that take `"auto"`: the monitors are read with one model for all four, which drops it
#: (deepspeed/monitor/config.py `get_monitor_config`); for the last it is the default.
_TAKES_AUTO: Final = frozenset({"tensorboard", "wandb", "csv_monitor", "comet", "keep_in_fp32_modules"})
#: A section with one of these left out by `"auto"` does something else than meant.
_DECISIVE: Final = frozenset({"stage", "enabled", "device", "autotp_size", "tp_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Who reads the config."""

    schema: DeepSpeedSchema
    version: tuple[int, ...]
    fills: bool  #: "auto" is filled in before DeepSpeed reads it


def problems(submission: Submission) -> Iterator[tuple[Config, Problem]]:
    """Every problem of every config with its keys and their values; found once a submission."""
    found = vars(submission).get("_ds_problems")
    if found is None:
        found = tuple((config, problem) for config in submission.configs for problem in walk(config, submission))
        vars(submission)["_ds_problems"] = found  # as its cached properties keep theirs
    yield from found


def walk(config: Config, submission: Submission) -> Iterator[Problem]:
    """Every problem of one config with its keys and their values."""
    version = submission.deepspeed_version
    reader = _Reader(schema=load_schema(version), version=version, fills=submission.consumer in FILLERS)
    data = config.json.data
    if config.json.broken is not None:
        return
    if not isinstance(data, dict):
        message = f"a DeepSpeed config is an object; this one is {shown(data)}"
        yield Problem(rule="PARSE011", pointer="", message=message, hint='{"train_batch_size": 256}')
        return
    top = reader.schema.section("")
    if top is not None:
        yield from _section("", data, top, reader)


def _section(pointer: str, data: Mapping[str, Any], section: Section, reader: _Reader) -> Iterator[Problem]:
    yield from unknown_keys(pointer, data, section, reader.schema, reader.version)
    for name, written in data.items():
        key = section.keys.get(name)
        if key is None or (not pointer and not _is_read(name, data, section)):
            continue
        value, place = as_hjson(written), f"{pointer}/{escape(name)}"
        if section.kind == "model":
            yield from _of_model(place, value, key, section, reader)
        else:
            yield from _of_mapping(place, value, key, reader)
    if section.kind == "model":
        yield from _twice(pointer, data, section)


def _is_read(name: str, data: Mapping[str, Any], section: Section) -> bool:
    """Whether the parser looks at this top-level key: at `bfloat16` only where there is no `bf16`."""
    if name != "bfloat16" or "bf16" not in data:
        return True
    takes_null = "null" not in section.keys["bf16"].refuses  # then null counts as left out
    return takes_null and data["bf16"] is None


def _of_model(place: str, value: object, key: Key, section: Section, reader: _Reader) -> Iterator[Problem]:
    if value == "auto" and key.name != _KEEPS_AUTO:
        if not reader.fills:
            yield _dropped(place, key)
        return
    problem = wrong_value(place, value, key, section, mismatch(value, key, pydantic=reader.schema.pydantic))
    if problem is not None:
        yield problem
    elif isinstance(value, dict):
        yield from _inner(place, value, key, reader)


def _of_mapping(place: str, value: object, key: Key, reader: _Reader) -> Iterator[Problem]:
    if value == "auto" and (key.name in _TAKES_AUTO or reader.fills):
        return
    problem = refused(place, value, key, reader.schema)
    if problem is not None:
        yield problem
    elif isinstance(value, dict):
        yield from _inner(place, value, key, reader)


def _inner(place: str, value: Mapping[str, Any], key: Key, reader: _Reader) -> Iterator[Problem]:
    inner = reader.schema.section(key.type.section) if key.type.section is not None else None
    if inner is not None:
        yield from _section(place, value, inner, reader)


def _dropped(place: str, key: Key) -> Problem:
    default = "" if key.default is None else f", {shown(key.default)}"
    return Problem(
        rule="PARSE008",
        pointer=place,
        message=f'{named(place)} is "auto": DeepSpeed leaves it out and takes its default{default}',
        hint='write a value; only Transformers and accelerate fill "auto" in (--consumer huggingface)',
        severity=Severity.ERROR if key.name in _DECISIVE else Severity.WARNING,
    )


def _twice(pointer: str, data: Mapping[str, Any], section: Section) -> Iterator[Problem]:
    """A key by its field's name and its alias, or a deprecated key together with what replaces it."""
    given = {name for name, value in data.items() if value != "auto"}
    for key in {section.keys[name].name: section.keys[name] for name in data if name in section.keys}.values():
        if key.alias is not None and key.alias in given and key.name in given:
            yield Problem(
                rule="PARSE012",
                pointer=f"{pointer}/{escape(key.name)}",
                message=f"`{key.name}` and `{key.alias}` are the same key; DeepSpeed refuses both together",
                hint=f"keep `{key.alias}`",
                at_key=True,
                mend=taken_out(f"{pointer}/{escape(key.name)}") if data[key.name] == data[key.alias] else None,
            )
        if key.deprecated is not None and key.name in given:
            yield from _deprecated(pointer, data, key, section, given)


def _deprecated(
    pointer: str, data: Mapping[str, Any], key: Key, section: Section, given: set[str]
) -> Iterator[Problem]:
    replaced = key.deprecated
    if replaced is None:
        return
    place = f"{pointer}/{escape(key.name)}"
    new = section.keys.get(replaced.by)
    names = {replaced.by} if new is None else {new.name, new.written}
    instead = replaced.by if new is None else new.written
    if replaced.moved and names & given:
        message = f"the deprecated `{key.name}` and `{instead}`, which replaces it, are both given"
        hint = f"take `{key.name}` out"
        yield Problem(rule="PARSE013", pointer=place, message=message, hint=hint, at_key=True, mend=taken_out(place))
        return
    rule = "ZERO003" if key.name.startswith("cpu_offload") else "ZERO004"
    message = f"`{key.name}` is deprecated; DeepSpeed reads it as `{instead}` and says so in the log"
    if not replaced.moved:
        message = f"`{key.name}` is deprecated and no longer does anything"
    value = data[key.name]
    hint, mend = _instead(key.name, value, instead), _rewritten(place, key.name, value, instead)
    yield Problem(rule=rule, pointer=place, message=message, hint=hint, at_key=True, mend=mend)


def _rewritten(place: str, name: str, value: object, instead: str) -> Mend:
    """The deprecated key as the one that replaces it."""
    if name == "cpu_offload_use_pin_memory" or (name.startswith("cpu_offload") and not value):
        return taken_out(place)
    return rewritten(place, instead, {"device": "cpu"}) if name.startswith("cpu_offload") else renamed(place, instead)


def _instead(name: str, value: object, instead: str) -> str:
    if name in ("cpu_offload", "cpu_offload_param"):
        return f'"{instead}": {{"device": "{"cpu" if value else "none"}"}}'
    if name == "cpu_offload_use_pin_memory":
        return '"pin_memory" within "offload_optimizer" and "offload_param"'
    return f'"{instead}": {shown(value)}'
