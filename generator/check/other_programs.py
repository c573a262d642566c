"""Programs with configuration files of their own, from which they configure DeepSpeed or Megatron.

Such a file is recognised by its keys, and read for what its program hands on.

gpt-neox makes a DeepSpeed config of some of its keys; axolotl, LLaMA-Factory and ms-swift make
TrainingArguments. Files of the others are left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from ..dataclass import dataclass
from ..findings import Location
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
from ..text.document import Document
from ..text.source import Source, escape
from ..text.text import Text
from .kinds import read_record

#: A list of defaults, a value that must be given, a resolver, another key's value. Source:
#: hydra-core 1.3, omegaconf 2.3 (grammar).
_HYDRA: Final = re.compile(
    r"^defaults:[ \t]*(?:#.*)?\n[ \t]*-|:[ \t]+\?\?\?[ \t]*(?:#.*)?$|\$\{(?:oc|now|hydra|env)[.:]"
    r"|:[ \t]+\$\{[a-z][a-z0-9_.]*\}[ \t]*$",
    re.MULTILINE,
)
#: What gpt-neox hands on as it is. Source: EleutherAI/gpt-neox
#: megatron/neox_arguments/deepspeed_args.py ( NeoXArgsDeepspeedConfig); it builds the optimizer and
#: the schedule itself (megatron/training.py, get_optimizer).
_OF_NEOX: Final = (
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
#: What every DeepSpeed has in these blocks, with integers; the one that gpt-neox comes with takes
#: more.
_PRECISION: Final[Mapping[str, tuple[str, ...]]] = {
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
# else a part of one
_CONFIG_OF_NEOX: Final = frozenset(["train_micro_batch_size_per_gpu", "zero_optimization"])
_FOR_MEGATRON: Final = frozenset(
    ["expert_model_parallel_size", "pipeline_model_parallel_size", "tensor_model_parallel_size"]
)
_TRAINERS: Final = frozenset(["axolotl", "LLaMA-Factory", "ms-swift"])
ANOTHER: Final = "another program"  #: that isn't known, though its files resemble a known one's
_ALIKE: Final = 0.8  # of keys of which one may be the other with a slip or two


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The top-level keys by which a program's file is recognised.

    It has all of `needs`, any of `one_of`, and at least `least` keys of `one_of` and `signs`
    together.
    """

    needs: frozenset[str] = frozenset()
    one_of: frozenset[str] = frozenset()
    signs: frozenset[str] = frozenset()
    least: int = 0
    json: bool = False  #: whether it reads JSON too
    only: frozenset[str] = frozenset()  #: all keys that its files have; empty: any

    def is_resembled(self, keys: frozenset[str]) -> bool:
        """Return whether keys are of a file that only resembles its own: several are none of its
        keys, and no slips of them.
        """
        others = keys - self.only if self.only else frozenset[str]()
        strange = [key for key in others if not get_close_matches(key, self.only, 1, _ALIKE)]
        return len(strange) > 1

    def has_written(self, keys: frozenset[str]) -> bool:
        """Return whether keys are of one of its files."""
        if not self.needs <= keys or (self.one_of and not self.one_of & keys):
            return False
        return len(keys & (self.one_of | self.signs)) >= self.least


@lru_cache(maxsize=1)
def _programs() -> Mapping[str, _Program]:
    text = read_text(__package__, "other_programs.json")
    return {name: read_record(_Program, entry) for name, entry in json.loads(text).items()}


def program_by_keys(keys: frozenset[str], content: str, *, is_json: bool) -> str | None:
    """The program whose file has these top-level keys; None where it is none that is known."""
    if "$schema" in keys:  # AzureML's
        return None
    plain = frozenset(key.replace("-", "_") for key in keys)
    of_json = (name for name, program in _programs().items() if program.json or not is_json)
    known = next((name for name in of_json if _programs()[name].has_written(plain)), None)
    if known and _programs()[known].is_resembled(plain):
        return ANOTHER
    return known or ("Hydra" if not is_json and _HYDRA.search(content) else None)


def is_read(program: str) -> bool:
    """Return whether a program's files are read: for what it hands on, or for its own settings."""
    if program == "gpt-neox" or program in _TRAINERS:
        return True
    front_end = front_ends().get(program)
    return front_end is not None and front_end.in_file


def handed_on(program: str, source: Source, text: Text) -> Iterator[Document]:
    """Yield the documents that a program makes of its file, with places in that file.

    Yields nothing where it isn't known what the program makes.
    """
    data = source.data if isinstance(source.data, dict) else {}
    if program == "gpt-neox":
        config = _config_of_neox(data, source, text)
        if _CONFIG_OF_NEOX & config.block("").keys():
            yield config
    elif program in _TRAINERS and not _FOR_MEGATRON & data.keys() and not is_record(data):
        front_end = front_ends()[program]
        yield _arguments(data, source, front_end)
        if front_end.in_file:
            yield config_of(front_end, source, text)
    elif program not in _TRAINERS and is_read(program):
        yield config_of(front_ends()[program], source, text)


def _config_of_neox(data: Mapping[str, object], source: Source, text: Text) -> DsConfig:
    """The DeepSpeed config that gpt-neox makes: `precision` decides whether bf16 is on."""
    kept: dict[str, object] = {}
    at: dict[str, str] = {}
    for name, value in data.items():
        plain = name.replace("-", "_")
        if plain in _OF_NEOX and value is not None:
            known = _PRECISION.get(plain)
            if known and isinstance(value, dict):
                value = {
                    key: inner
                    for key, inner in value.items()
                    if key in known and isinstance(inner, int)
                }
            kept[plain] = value
            at[f"/{plain}"] = f"/{escape(name)}"
    if data.get("precision") == "bfloat16" and "bf16" not in kept:
        kept["bf16"] = {"enabled": True}
        at["/bf16"] = "/precision"
    return config_from_yaml(kept, source, text, at)


def _arguments(
    data: Mapping[str, object], source: Source, front_end: FrontEnd
) -> TrainingArguments:
    """The TrainingArguments of a program that converts text to numbers."""
    values: dict[str, object] = {}
    places: dict[str, Location] = {}
    changed = {
        name
        for key, names in front_end.instead_of.items()
        if data.get(key) not in (None, False)
        for name in names
    }
    for name, value in data.items():
        argument = front_end.arguments.get(name) if front_end.arguments else name
        own = front_end.own_values.get(name, ())
        if argument is None or value is None or value == "auto" or name in changed or value in own:
            continue
        kind = known_arguments().get(argument, {}).get("type", "")
        values[argument] = read_value(value, kind) if isinstance(value, str) else value
        places[argument] = source.locate(f"/{escape(name)}")
        if isinstance(value, dict):
            renamed = {key: _within(front_end, argument, str(key)) for key in value}
            values[argument] = {renamed[key]: value[key] for key in value if renamed[key]}
            for key, inner in renamed.items():
                where = source.locate(f"/{escape(name)}/{escape(str(key))}")
                places[f"{argument}/{inner}"] = where

    for name, brought in front_end.brings.items():
        if values.get(name):
            for argument, value in brought.items():
                outer, _, inner = argument.partition("/")
                mapping = values.get(outer)
                if argument not in values and not (isinstance(mapping, dict) and inner in mapping):
                    values[argument] = value
                    places.setdefault(argument, places[name])
    _put_into_mappings(values)

    if unless := front_end.checkpoints_unless:
        values["gradient_checkpointing"] = data.get(unless) is not True
    return TrainingArguments(
        path=source.path,
        values=values,
        places=places,
        by=front_end.name,
        complete=front_end.leaves_defaults,
        redefined=frozenset(front_end.kept),
    )


def _within(front_end: FrontEnd, outer: str, key: str) -> str:
    """The name of a key within a mapping as it is handed on; empty where it isn't."""
    plain = f"{outer}/{key.removeprefix('fsdp_')}"
    return front_end.arguments.get(plain, f"{outer}/{key}").partition("/")[2]


def _put_into_mappings(values: dict[str, object]) -> None:
    """Put each value of a name `a/b` into the mapping `a`; it counts only where there is one."""
    for name in [name for name in values if "/" in name]:
        outer, _, inner = name.partition("/")
        value, mapping = values.pop(name), values.get(outer)
        if isinstance(mapping, dict):
            values[outer] = {**mapping, inner: value}
