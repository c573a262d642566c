"""The spec's shape against `schemas/job.schema.json`, with violations in the user's terms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from ..catalog import closest
from ..findings import Finding
from ..json_schema import TYPE_WORDS, Breach, breaches
from ..rule import Rule
from ..text.source import Source, escape
from ..text.wording import dotted, listed, show
from ..text.yaml_core import resolve_plain
from . import codes
from .quantities import length_of
from .schema import load_schema

#: By the key's path, names of Megatron-LM's arguments, of DeepSpeed's and the Trainer's keys, and
#: everyday short forms.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "gpus": "num_gpus n_gpus world_size",
    "nodes": "num_nodes nnodes",
    "cluster.preset": "node_type instance_type machine_type name type",
    "cluster.accelerators_per_node": "gpus_per_node num_gpus_per_node",
    "cluster.host_memory_gib": "memory ram host_memory",
    "layout.data": "dp data_parallel data_parallel_size",
    "layout.tensor": "tp tensor_parallel tensor_parallel_size tensor_model_parallel_size",
    "layout.pipeline": "pp pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size",
    "layout.context": "cp context_parallel context_parallel_size",
    "layout.expert": "ep expert_parallel expert_parallel_size expert_model_parallel_size",
    "layout.zero_stage": "zero zero1 zero2 zero3 stage",
    "layout.micro_batch": "mbs micro_batch_size per_device_train_batch_size "
    "train_micro_batch_size_per_gpu",
    "layout.gradient_accumulation": "gas grad_accum gradient_accumulation_steps",
    "layout.recompute": "gradient_checkpointing activation_checkpointing recompute_granularity",
    "training.global_batch": "gbs batch batch_size global_batch_size train_batch_size",
    "training.sequence_length": "seq_len seq_length max_seq_length max_length context_length",
    "training.precision": "dtype torch_dtype mixed_precision bf16 fp16",
    "training.mode": "task stage finetuning_type",
    "training.learning_rate": "lr",
    "training.duration.steps": "max_steps num_steps train_steps train_iters",
    "training.duration.tokens": "train_tokens num_tokens",
    "training.duration.samples": "train_samples num_samples",
    "training.duration.epochs": "num_train_epochs num_epochs",
    "data.path": "data_path dataset dataset_path train_file",
    "output.checkpoints": "checkpoint checkpoint_dir save save_dir output_dir dir path",
    "launch.target": "type launcher scheduler",
    "launch.environment": "env",
    "launch.time_limit": "time walltime timeout",
}


_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
_SIZES: Final = {"maxLength": "characters", "maxItems": "items", "maxProperties": "keys"}
_ONE_OF: Final = {"": ("gpus", "nodes"), "/training/duration": ("tokens", "steps", "samples")}
_FALSE_WORDS: Final = ("no", "No", "NO", "off", "Off", "OFF", "n", "N", "0", 0, "False")
_WITH_EXAMPLE: Final = {"examples", "default", "enum"}  #: keywords that give an example
_MOST_KEYS: Final = 100  # that are named one by one
_MOST_HOMES: Final = 3  # that a hint names


def broken_keywords(source: Source, name: str = "job") -> Iterator[Breach]:
    """What a document breaks of a published schema, by default that of job specs."""
    schema = load_schema(name)
    yield from breaches(source.data, schema, schema["$defs"])


def takes_text(path: tuple[str, ...]) -> bool:
    """Ask whether the key at `path` takes any text as it is.

    It doesn't where it may be a list, which is read as YAML.
    """
    node = load_schema()
    for part in path:
        if "$ref" in node:
            node = load_schema()["$defs"][node["$ref"].rpartition("/")[2]]
        any_key = node.get("additionalProperties")
        of_any_key = any_key if isinstance(any_key, dict) else {}
        node = node.get("properties", {}).get(part, of_any_key)
    types = node.get("type", ())
    if types == "string":
        return True
    return "string" in types and not {"object", "integer", "array"}.intersection(types)


def check_schema(source: Source) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """A finding for every violation of the schema.

    Returned with them: pointers of the keys that unknown ones stand for, which are in another place
    or misspelled.
    """
    findings: list[Finding] = []
    lacking: list[tuple[Finding, set[str]]] = []  # with the paths of which one is missing
    refused, meant = set[str](), set[str]()
    for breach in broken_keywords(source):
        pointer = breach.pointer
        if breach.keyword == "additionalProperties":
            for finding, paths in _unknown_keys(source, breach):
                findings.append(finding)
                meant.update(paths)
        elif breach.keyword == "required":
            lacking.append(_missing_key(source, breach))
        elif breach.keyword == "oneOf":
            # Other keywords judge what is no mapping, and `dependentRequired` says more of epochs
            # alone.
            if isinstance(breach.value, dict) and set(breach.value) != {"epochs"}:
                lacking.append(_alternatives(source, breach))
        elif breach.keyword == "dependentRequired":
            where = source.locate_key(f"{pointer}/epochs")
            message = f"`{dotted(pointer)}.epochs` counts passes over `samples`, which is missing"
            findings.append(
                codes.MISSING_KEY.at(where, message, "add `samples: 1000000`, or remove epochs")
            )
        elif pointer not in refused:  # a value's first violation is the most general
            refused.add(pointer)
            shown = source.texts.get(pointer) or show(breach.value)
            rule, message, hint = refused_value(dotted(pointer), shown, breach)
            if pointer.startswith("/layout/") and breach.value == "auto":
                hint = "leave the key out: dsgen chooses its value"
            findings.append(rule.at(source.locate(pointer), message, hint))
    lacks = (lack for lack, paths in lacking if meant.isdisjoint(paths))
    return (*findings, *lacks), tuple(f"/{path.replace('.', '/')}" for path in meant)


def misspelt_keys(source: Source) -> dict[str, str]:
    """Pointers of unknown keys of a spec, with those of the keys that they were meant to be.

    What may be several keys, or none, has an empty one.
    """
    meant_by_pointer: dict[str, str] = {}
    for breach in broken_keywords(source):
        if breach.keyword == "additionalProperties":
            section = dotted(breach.pointer) if breach.pointer else ""
            for key in breach.keys[:_MOST_KEYS]:
                paths = _meant_keys(key, tuple(breach.schema["properties"]), section)
                meant = f"/{paths[0].replace('.', '/')}" if len(paths) == 1 else ""
                meant_by_pointer[f"{breach.pointer}/{escape(key)}"] = meant
    return meant_by_pointer


def _unknown_keys(source: Source, breach: Breach) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """A finding for each unknown key, with the paths of the keys that it may stand for."""
    pointer, unknown = breach.pointer, breach.keys
    keys = tuple(breach.schema["properties"])
    section = dotted(pointer) if pointer else ""
    place = f"`{section}`" if pointer else "the job spec"

    for key in unknown[:_MOST_KEYS]:
        where = source.locate_key(f"{pointer}/{escape(key)}")
        paths = _meant_keys(key, keys, section)
        if not paths:
            hint = f"use one of {', '.join(keys)}"
        elif any(path.rpartition(".")[2] != key for path in paths):
            meant = paths[0].removeprefix(f"{section}.") if section else paths[0]
            hint = f"did you mean `{meant}`?"
        else:
            homes = [path.rpartition(".")[0] for path in paths]
            places = (f"under `{home}`" if home else "at the top level" for home in homes)
            hint = f"write it {' or '.join(places)}"
        yield codes.UNKNOWN_KEY.at(where, f"unknown key {show(key)} in {place}", hint), paths
    if len(unknown) > _MOST_KEYS:
        where = source.locate_key(f"{pointer}/{escape(unknown[_MOST_KEYS])}")
        message = f"{len(unknown) - _MOST_KEYS:,} more unknown keys in {place}"
        yield codes.UNKNOWN_KEY.at(where, message, "remove keys that are no part of a job spec"), ()


def _meant_keys(key: str, keys: tuple[str, ...], section: str) -> tuple[str, ...]:
    """Paths of the keys that an unknown one may stand for.

    They are other names here, the same name elsewhere, or names that are like it.
    """
    inside = f"{section}." if section else ""
    named = tuple(
        path
        for path, names in OTHER_NAMES.items()
        if key.lower().replace("-", "_") in names.split()
    )
    here = tuple(path for path in named if path.rpartition(".")[0] == section)
    if here:
        return here
    elsewhere = tuple(f"{home}.{key}" if home else key for home in _homes().get(key, ()))
    if elsewhere:
        return elsewhere[:_MOST_HOMES]
    if len(named) == 1:
        return named
    shortened = [name for name in keys if name.startswith(f"{key}_") or key == _initials(name)]
    near = shortened[0] if len(shortened) == 1 else closest(key, keys)
    return (f"{inside}{near}",) if near else ()


def _initials(key: str) -> str:
    """The first letters of a key's words: `mb` of `micro_batch`."""
    return "".join(word[:1] for word in key.split("_"))


@cache
def _homes() -> dict[str, tuple[str, ...]]:
    """Map each key to the sections that have it; the top level, which is no section, is last."""
    properties, parts = load_schema()["properties"], load_schema()["$defs"]
    named = ("training", "data", "output", "reliability", "layout", "launch")
    sections = {name: parts[name]["properties"] for name in named}
    sections["memory"] = properties["memory"]["properties"]
    sections["data.tokenizer"] = parts["data"]["properties"]["tokenizer"]["properties"]
    sections["training.batch_ramp"] = parts["training"]["properties"]["batch_ramp"]["properties"]
    sections["training.duration"] = parts["training"]["properties"]["duration"]["properties"]
    launch = parts["launch"]["properties"]
    sections |= {
        f"launch.{name}": part["properties"]
        for name, part in launch.items()
        if "properties" in part
    }
    homes: dict[str, tuple[str, ...]] = {}
    for section, keys in (*sections.items(), ("", properties)):
        for key in keys:
            homes[key] = (*homes.get(key, ()), section)
    return homes


@cache
def _sections() -> dict[str, str]:
    """Map each key below the top level to its section; keys of more than one are left out."""
    below = ((key, [home for home in homes if home]) for key, homes in _homes().items())
    return {key: homes[0] for key, homes in below if len(homes) == 1}


def key_paths() -> dict[str, str]:
    """Dotted paths of the spec's keys: by the path itself, and by its last part, such as `tensor`,
    where no other key has the same.
    """
    paths = {key: key for key in load_schema()["properties"]}
    below = {
        key: section for key, section in _sections().items() if not section.startswith("launch")
    }
    paths |= {key: f"{section}.{key}" for key, section in below.items() if key not in paths}
    return paths | {path: path for path in paths.values()}


def _missing_key(source: Source, breach: Breach) -> tuple[Finding, set[str]]:
    pointer, (key,) = breach.pointer, breach.keys
    hint = f"add `{key}: {_example(breach.schema['properties'][key])}`"
    paths = {dotted(f"{pointer}/{key}")}
    if pointer == "/cluster":
        paths.add("cluster.preset")
        if key == "accelerator":
            hint += f", or `preset: {_example(load_schema()['properties']['cluster'])}`"

    empty = source.keys.get(f"{pointer}/{key}")  # there, but without a value
    message = f"`{dotted(f'{pointer}/{key}')}` is {'empty' if empty else 'missing'}"
    return codes.MISSING_KEY.at(empty or source.locate(pointer), message, hint), paths


def _alternatives(source: Source, breach: Breach) -> tuple[Finding, set[str]]:
    pointer, choices = breach.pointer, _ONE_OF[breach.pointer]
    written = [key for key in choices if key in breach.value]
    prefix = f"{dotted(pointer)}." if pointer else ""
    if not written:
        example = _example(breach.schema["properties"][choices[0]])
        hint = f"add one, such as `{choices[0]}: {example}`"
        message = f"{' or '.join(f'`{prefix}{key}`' for key in choices)} is missing"
        return codes.MISSING_KEY.at(source.locate(pointer), message, hint), {
            f"{prefix}{key}" for key in choices
        }
    message = f"{' and '.join(f'`{prefix}{key}`' for key in written)} exclude each other"
    where = source.locate_key(f"{pointer}/{written[-1]}")
    kept = str(source.texts.get(f"{pointer}/{written[0]}", breach.value[written[0]]))
    return codes.CONFLICTING_KEYS.at(where, message, f"keep `{written[0]}: {kept[:60]}`"), set()


def _written(key: str, value: object) -> str:
    """A value as it is written: after its key, or alone in a list."""
    return str(value) if key.endswith("]") else f"{key}: {value}"


def _example_hint(key: str, breach: Breach) -> str | None:
    """The hint with an example of the schema's, or with the number that a text such as 4k means."""
    if "examples" not in breach.schema:
        return None
    number = length_of(str(breach.value))
    if number and isinstance(breach.schema["examples"][0], int):
        return f"write the number: `{key}: {number}`"
    return f"write a value such as `{_written(key, _example(breach.schema))}`"


def refused_value(name: str, shown: str, breach: Breach) -> tuple[Rule, str, str | None]:
    """Rule, message and hint for one value that the schema refuses."""
    wanted, keyword = breach.wanted, breach.keyword
    if keyword == "type" and wanted == "string" and "enum" in breach.schema:  # no quotes would help
        wanted, keyword = breach.schema["enum"], "enum"
    key = name.rpartition(".")[2]
    hint = _example_hint(key, breach)
    if keyword == "type":
        types = [wanted] if isinstance(wanted, str) else wanted
        expected = f"`{name}` is {shown}; expected {_types(types)}"
        if re.search(breach.schema.get("pattern", ""), shown):  # else no quotes would help
            usual_hint = hint or _of_keys(breach.schema, key)
            hint = _type_hint(breach.value, shown, types, name, usual_hint)
        return codes.WRONG_TYPE, expected, hint
    if keyword == "enum":
        choices = [str(choice) for choice in wanted]
        near = _meant(breach.value, choices) if isinstance(breach.value, str) else None
        near = "none" if breach.value is False and "none" in choices else near
        hint = f"did you mean `{near}`?" if near else None  # the message names all
        return codes.WRONG_VALUE, f"`{name}` is {shown}; expected {listed(choices)}", hint
    if keyword in _BOUNDS:
        low, high = (breach.schema.get(bound) for bound in ("minimum", "maximum"))
        expected = f"{_BOUNDS[keyword]} {breach.schema[keyword]:,}"
        if low is not None and high is not None:
            expected = f"{low:,} to {high:,}"
        return codes.WRONG_VALUE, f"`{name}` is {shown}; expected {expected}", hint
    if keyword == "pattern" and breach.value:
        as_path = f"./{breach.value}"
        if breach.value.startswith("-") and re.search(wanted, as_path):
            hint = f"write `{_written(key, as_path)}`"
        message = f"`{name}` is {shown}; expected {breach.schema['patternErrorMessage']}"
        return codes.WRONG_VALUE, message, hint
    if keyword in _SIZES:
        message = f"`{name}` has {len(breach.value)} {_SIZES[keyword]}; expected at most {wanted}"
        return codes.WRONG_VALUE, message, "shorten it"
    return codes.WRONG_VALUE, f"`{name}` is empty", hint or "give it a value, or remove the key"


def _meant(text: str, choices: list[str]) -> str | None:
    """The choice that a word shortens, as `k8s` does, or is most like.

    `None` where there is none.
    """
    pattern = f"{re.escape(text.lower())}.*"
    counted = re.fullmatch(r"([a-z])([0-9]+)([a-z])", text.lower())  # `k8s`: k, 8 letters, s
    if counted:
        first, count, last = counted.groups()
        pattern = f"{first}.{{{count}}}{last}"
    fitting = [choice for choice in choices if re.fullmatch(pattern, choice)]
    return fitting[0] if text and len(fitting) == 1 else closest(text, choices)


def _types(types: list[str]) -> str:
    return " or ".join(TYPE_WORDS[kind] for kind in types if kind != "null")


def _of_keys(schema: Mapping[str, Any], key: str) -> str | None:
    """A mapping with its first key, as a hint."""
    for name, part in schema.get("properties", {}).items():
        if _WITH_EXAMPLE.intersection(part):
            return f"write its keys, as in `{key}: {{{name}: {_example(part)}}}`"
    return None


def _type_hint(
    value: object, shown: str, types: list[str], name: str, usual_hint: str | None
) -> str:
    """What to write in the place of a value of another type than `types`."""
    section, _, key = name.rpartition(".")
    takes_text, takes_mapping = "string" in types, "object" in types
    is_scalar = value is None or isinstance(value, (bool, int, float))
    if takes_text and not takes_mapping and is_scalar:
        text = f'"{"" if value is None else shown}"'
        return f"write it in quotes: `{_written(key, text)}`"
    home = _sections().get(key, section)
    if types == ["object"] and isinstance(value, (int, float)) and home != section:
        return f"write `{key}: {shown}` under `{home}`"  # `data: 8` is the layout's
    if types == ["boolean"]:
        return f"write `{key}: {'false' if value in _FALSE_WORDS else 'true'}`"
    if isinstance(value, str) and not takes_text:
        start = value[:20]
        if isinstance(resolve_plain(start), (int, float)):
            return f"write it without quotes: `{key}: {start}`"
    if usual_hint:
        return usual_hint
    return "write its keys below it, indented" if types == ["object"] else f"write {_types(types)}"


def _example(schema: Mapping[str, Any]) -> str:
    """A value that passes, as the user would write it in YAML."""
    if "examples" not in schema:
        return str(schema.get("default", schema.get("enum", ["..."])[0]))
    example = schema["examples"][0]
    is_plain = isinstance(example, str) and isinstance(resolve_plain(example), str)
    return example if is_plain else json.dumps(example)
