"""Files of other programs, which configure DeepSpeed, Megatron or the Trainer by their own keys.

Such a file is recognised by its keys. Some are read for what the program makes of them: a
DeepSpeed config (gpt-neox), TrainingArguments (axolotl, LLaMA-Factory, ms-swift), or settings of
another front end. The others are only recognised, so that they aren't taken for something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from ..dataclass import dataclass
from ..findings import Location
from ..patterns import lazy_pattern
from ..places import holds_variable
from ..programs.deepspeed.config import DsConfig, config_from_yaml
from ..programs.launching.front_end_config import config_of
from ..programs.launching.front_ends import FrontEnd, front_ends
from ..programs.trainer.training_arguments import (
    TrainingArguments,
    is_record,
    known_arguments,
    read_value,
)
from ..resources import read_text
from ..submission.record import loaded
from ..text.document import Document
from ..text.source import Source, escape
from ..text.text import Text

#: What only files of Hydra have: a list of defaults, a value that must be given (`???`), a
#: resolver, the value of another key. Source: hydra-core 1.3, omegaconf 2.3 (grammar).
_HYDRA: Final = lazy_pattern(
    r"^defaults:[ \t]*(?:#.*)?\n[ \t]*-|:[ \t]+\?\?\?[ \t]*(?:#.*)?$|\$\{(?:oc|now|hydra|env)[.:]"
    r"|:[ \t]+\$\{[a-z][a-z0-9_.]*\}[ \t]*$",
    re.MULTILINE,
)
#: Keys that gpt-neox copies into its DeepSpeed config. Source: EleutherAI/gpt-neox
#: megatron/neox_arguments/deepspeed_args.py (NeoXArgsDeepspeedConfig). Optimizer and scheduler
#: aren't among them: it builds these itself (megatron/training.py, get_optimizer).
_NEOX_KEYS: Final = (
    "activation_checkpointing",
    "amp",
    "autotuning",
    "bf16",
    "checkpoint",
    "comms_logger",
    "communication_data_type",
    "compression_training",
    "csv_monitor",
    "data_efficiency",
    "data_types",
    "dump_state",
    "elasticity",
    "flops_profiler",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "gradient_predivide_factor",
    "prescale_gradients",
    "sparse_gradients",
    "steps_per_print",
    "tensorboard",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "wandb",
    "wall_clock_breakdown",
    "zero_optimization",
)
#: Keys of these blocks that every release of DeepSpeed has, with integers as values. gpt-neox comes
#: with a DeepSpeed of its own, which takes more.
_NEOX_PRECISION_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "bf16": ("enabled",),
    "fp16": (
        "consecutive_hysteresis",
        "enabled",
        "hysteresis",
        "initial_scale_power",
        "loss_scale",
        "loss_scale_window",
        "min_loss_scale",
    ),
}
#: A file of gpt-neox without any of these is one of several that a launch names together: what is
#: made of it alone is no whole config.
_NEOX_MAIN_KEYS: Final = frozenset(["train_micro_batch_size_per_gpu", "zero_optimization"])
#: Keys by which a trainer's file starts Megatron: it makes no TrainingArguments then.
_MEGATRON_KEYS: Final = frozenset(
    ["expert_model_parallel_size", "pipeline_model_parallel_size", "tensor_model_parallel_size"]
)
_TRAINERS: Final = frozenset(["axolotl", "LLaMA-Factory", "ms-swift"])
#: A key of a block within the file.
_INDENTED_KEY: Final = lazy_pattern(r"^[ ]{1,12}([a-z_]{1,60}):", re.MULTILINE)
ANOTHER: Final = "another program"  #: an unknown one, whose files resemble those of a known one
_MISSPELT_FROM: Final = 0.8  # likeness of two keys from which one may be the other, misspelt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The keys by which a program's file is recognised.

    At its top level the file has all of `needs`, any of `one_of`, and at least `least` keys of
    `one_of` and `signs` together. A file with fewer is recognised where it has no other keys, and
    its blocks have two of the keys in `inside`. A file with more than `most` keys is data, such as
    a tokenizer's vocabulary, whose words are keys by chance.
    """

    needs: frozenset[str] = frozenset()
    one_of: frozenset[str] = frozenset()
    signs: frozenset[str] = frozenset()
    least: int = 0
    most: int | None = None
    inside: frozenset[str] = frozenset()
    json: bool = False  #: whether the program reads JSON too
    only: frozenset[str] = frozenset()  #: all keys that its files can have; empty: any
    reader: str = ""  #: path of the function that makes documents of its file; empty: see `is_read`

    def is_resembled(self, keys: frozenset[str]) -> bool:
        """Return whether a file with these keys is another program's that only resembles its own.

        At least two of the keys are unknown to it, even as misspelt ones.
        """
        if not self.only:
            return False
        unknown = keys - self.only
        strange = [
            key for key in unknown if not get_close_matches(key, self.only, 1, _MISSPELT_FROM)
        ]
        return len(strange) > 1

    def has_written(self, keys: frozenset[str], content: str) -> bool:
        """Return whether a file with these keys and this content is one of the program's."""
        if self.most is not None and len(keys) > self.most:
            return False
        signs = self.one_of | self.signs
        if self.inside and keys and keys <= signs:
            inside = self.inside.intersection(_INDENTED_KEY.findall(content))
            if len(inside) > 1:
                return True

        if not self.needs <= keys:
            return False
        if self.one_of and self.one_of.isdisjoint(keys):
            return False
        return len(keys & signs) >= self.least


@lru_cache(maxsize=1)
def _programs() -> Mapping[str, _Program]:
    text = read_text(__package__, "other_programs.json")
    return {name: _program(entry) for name, entry in json.loads(text).items()}


def _program(entry: Mapping[str, Any]) -> _Program:
    """A program's record from its JSON object, whose lists are sets."""
    fields: dict[str, Any] = {
        key: frozenset(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return _Program(**fields)


def program_by_keys(keys: frozenset[str], content: str, *, is_json: bool) -> str | None:
    """The program whose file has these top-level keys; None where it is of no known one."""
    if "$schema" in keys:  # AzureML's: `File.keys` leaves any other out
        return None
    plain = frozenset(key.replace("-", "_") for key in keys)  # gpt-neox takes both spellings
    for name, program in _programs().items():
        if (program.json or not is_json) and program.has_written(plain, content):
            return ANOTHER if program.is_resembled(plain) else name
    return "Hydra" if not is_json and _HYDRA.search(content) else None


def _reader_of(program: str) -> str:
    known = _programs().get(program)
    return "" if known is None else known.reader


def is_read(program: str) -> bool:
    """Return whether documents are made of a program's files: see `handed_on`."""
    if program == "gpt-neox" or program in _TRAINERS or _reader_of(program):
        return True
    front_end = front_ends().get(program)
    return front_end is not None and front_end.in_file


def handed_on(program: str, source: Source, text: Text) -> Iterator[Document]:
    """Yield the documents that a program makes of its file, with places in that file.

    Yields nothing where that isn't known, or where a run has written the file as its record.
    """
    data = source.data if isinstance(source.data, dict) else {}
    if program == "gpt-neox":
        config = _config_of_neox(data, source, text)
        if _NEOX_MAIN_KEYS & config.block("").keys():
            yield config
    elif reader := _reader_of(program):
        yield from loaded(reader)(source)
    elif program in _TRAINERS and not _MEGATRON_KEYS & data.keys() and not is_record(data):
        front_end = front_ends()[program]
        yield _arguments(data, source, front_end)
        if front_end.in_file:
            yield config_of(front_end, source, text)
    elif program not in _TRAINERS and is_read(program):
        yield config_of(front_ends()[program], source, text)


def _config_of_neox(data: Mapping[str, object], source: Source, text: Text) -> DsConfig:
    """The DeepSpeed config that gpt-neox makes of its file."""
    config: dict[str, object] = {}
    places: dict[str, str] = {}  # pointers into gpt-neox's file, by pointers into the config
    for name, value in data.items():
        key = name.replace("-", "_")  # gpt-neox takes both
        if key in _NEOX_KEYS and value is not None:
            config[key] = _known_in_every_release(key, value)
            places[f"/{key}"] = f"/{escape(name)}"
    if data.get("precision") == "bfloat16" and "bf16" not in config:
        config["bf16"] = {"enabled": True}
        places["/bf16"] = "/precision"
    return config_from_yaml(config, source, text, places)


def _known_in_every_release(key: str, value: object) -> object:
    """A key's value, without keys that only gpt-neox's own DeepSpeed may know."""
    precision_keys = _NEOX_PRECISION_KEYS.get(key)
    if precision_keys is None or not isinstance(value, dict):
        return value
    return {
        name: inner
        for name, inner in value.items()
        if name in precision_keys and isinstance(inner, int)
    }


def _arguments(
    data: Mapping[str, object], source: Source, front_end: FrontEnd
) -> TrainingArguments:
    """The TrainingArguments that a trainer makes of its file.

    Text is converted to the argument's type, as the trainer does it.
    """
    values: dict[str, object] = {}
    places: dict[str, Location] = {}
    for name, argument in _arguments_by_key(data, front_end).items():
        value = data[name]
        places[argument] = source.locate(f"/{escape(name)}")
        if holds_variable(value):
            continue  # the argument has a place and no value: it is set, but to what isn't known
        if isinstance(value, dict):
            new_names = {key: _name_within(front_end, argument, str(key)) for key in value}
            values[argument] = {
                new_name: value[key] for key, new_name in new_names.items() if new_name
            }
            for key, new_name in new_names.items():
                where = source.locate(f"/{escape(name)}/{escape(str(key))}")
                places[f"{argument}/{new_name}"] = where
        elif isinstance(value, str):
            kind = known_arguments().get(argument, {}).get("type", "")
            values[argument] = read_value(value, kind)
        else:
            values[argument] = value

    _add_what_keys_bring(front_end, values, places)
    _put_into_mappings(values)

    switch_off = front_end.checkpoints_unless
    if switch_off:
        values["gradient_checkpointing"] = data.get(switch_off) is not True
    return TrainingArguments(
        path=source.path,
        values=values,
        places=places,
        by=front_end.name,
        complete=front_end.leaves_defaults,
        redefined=frozenset(front_end.kept),
    )


def _arguments_by_key(data: Mapping[str, object], front_end: FrontEnd) -> dict[str, str]:
    """The name of the argument that gets a key's value, by the key.

    Keys that aren't handed on are left out.
    """
    replaced = set[str]()  # keys that another key of the file makes the program pass over
    for key, names in front_end.instead_of.items():
        if data.get(key) not in (None, False):
            replaced.update(names)

    arguments = {}
    for name, value in data.items():
        argument = front_end.arguments.get(name) if front_end.arguments else name
        says_nothing = value is None or value == "auto"
        stays_here = name in replaced or value in front_end.own_values.get(name, ())
        if argument is not None and not says_nothing and not stays_here:
            arguments[name] = argument
    return arguments


def _name_within(front_end: FrontEnd, outer: str, key: str) -> str:
    """The name under which a key of the mapping `outer` is handed on; empty where it isn't.

    The front end's table has its keys without the prefix `fsdp_`, which a file may have.
    """
    plain = f"{outer}/{key.removeprefix('fsdp_')}"
    return front_end.arguments.get(plain, f"{outer}/{key}").partition("/")[2]


def _add_what_keys_bring(
    front_end: FrontEnd, values: dict[str, object], places: dict[str, Location]
) -> None:
    """Add the arguments that the program sets along with others, unless the file has them."""
    for name, brought in front_end.brings.items():
        if not values.get(name):
            continue
        for argument, value in brought.items():
            outer, _, inner = argument.partition("/")
            mapping = values.get(outer)
            is_in_mapping = isinstance(mapping, dict) and inner in mapping
            if argument not in values and not is_in_mapping:
                values[argument] = value
                places.setdefault(argument, places[name])


def _put_into_mappings(values: dict[str, object]) -> None:
    """Put each value with a name `a/b` into the mapping `a`; drop it where there is no mapping."""
    nested = [name for name in values if "/" in name]
    for name in nested:
        outer, _, inner = name.partition("/")
        value, mapping = values.pop(name), values.get(outer)
        if isinstance(mapping, dict):
            values[outer] = {**mapping, inner: value}
