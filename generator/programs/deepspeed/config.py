"""A DeepSpeed config: as text (`DsConfig`), and as a release of DeepSpeed reads it (`Config`).

A `Config` converts values as the release's parser does: `"3"`, `3.0` and `3` are the same stage. A
key that is left out has the release's default. So has a key whose value is "auto", where
DeepSpeed's own models read it: they drop "auto". None stands for a value that isn't known: "auto"
that Transformers or accelerate will fill in, and what the parser refuses, such as the placeholder
of a template.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import PurePath
from typing import ClassVar, Final, Literal

from ...dataclass import dataclass
from ...findings import Location
from ...patterns import lazy_pattern
from ...places import NOTHING, Lines, Values, kind_of_value
from ...shape import Mismatch, convert
from ...text.document import FileText, Kind
from ...text.hjson.text import JsonText, Span
from ...text.source import Source
from ...text.text import Text
from ...text.wording import leaves, value_at, walk
from ..releases import Release
from . import ZERO as ZERO
from .schema import PROFILES, DeepSpeedSchema, Key, Version, as_hjson, load_schema

#: Programs that read a DeepSpeed config; all but DeepSpeed itself read strict JSON.
CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "lightning", "megatron-deepspeed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DsConfig(Values):
    """A DeepSpeed config in JSON or HJSON: a file, or a here-document of a launch script."""

    document_kind: ClassVar[Kind] = "DeepSpeed config"

    json: JsonText
    target: str | None = None  #: the file that a script writes it to; None: it is a file already

    @property
    def embedded(self) -> bool:
        """Return whether it is a part of a script: it can be checked, but not fixed by edits."""
        return self.target is not None

    @property
    def name(self) -> str:
        """The name of the file, without folders, as launch lines call it."""
        return PurePath(self.target or self.path).name

    @property
    def path(self) -> str:
        """The path as the user named it; of an embedded config, the script's."""
        return self.json.text.path

    def value(self, pointer: str, default: object = None) -> object:
        """The value at a JSON pointer such as `/zero_optimization/stage`; else `default`."""
        return self.json.value(pointer, default)

    def has(self, pointer: str) -> bool:
        """Return whether anything is written there, null included."""
        return self.json.has(pointer)

    def block(self, pointer: str) -> Mapping[str, object]:
        """The object that is written there; empty where there is none, or something else."""
        value = self.json.value(pointer)
        return value if isinstance(value, dict) else {}

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        return self.json.locate(pointer)

    def locate_key(self, pointer: str) -> Location:
        """The place of the key whose value is at `pointer`."""
        return self.json.locate_key(pointer)


#: Keys for which the autotuner takes a list of values to try.
_TUNED_KEYS: Final = lazy_pattern(
    r"/zero_optimization/(?:offload_\w+/)?\w+|/train_(?:micro_)?batch_size\w*"
)


def read_file(file: FileText) -> Iterator[DsConfig]:
    """The config that a file is.

    YAML that isn't JSON counts too: a program may read it and hand it on.
    """
    source = file.yaml() if file.is_yaml and file.json().deviations else None
    if source is not None and source.complete and isinstance(source.data, dict):
        yield config_from_yaml(source.data, source, file.text, {})
    else:
        yield DsConfig(json=tuning_space(file.json()))


def config_from_yaml(
    data: Mapping[str, object], source: Source, text: Text, at: Mapping[str, str]
) -> DsConfig:
    """A DeepSpeed config that a YAML file has as a mapping.

    `at` has, by the pointer of a key at the config's top, the pointer of that key in the file,
    where the two differ.
    """
    lines = Lines(text)

    def offset(where: Location) -> int:
        return lines.starts[(where.line or 1) - 1] + (where.column or 1) - 1

    data, spans = dict(data), {"": Span(0, 0)}
    for pointer, _ in walk("", data):
        if not pointer:
            continue
        top, slash, rest = pointer[1:].partition("/")
        in_file = f"{at.get(f'/{top}', f'/{top}')}{slash}{rest}"
        start, key = offset(source.locate(in_file)), offset(source.locate_key(in_file))
        spans[pointer] = Span(start, start, key, key)
    json_text = JsonText(
        text=text,
        data=data,
        json_data=data,
        spans=spans,
        duplicates=(),
        deviations=(),
        broken=None,
        lines=lines,
    )
    return DsConfig(json=tuning_space(json_text), target=text.path)


def tuning_space(json_text: JsonText) -> JsonText:
    """A config with "auto" in place of each list of values that DeepSpeed's autotuner tries.

    Source: deepspeed/autotuning/autotuner.py:305-322 and :544, utils.py:285 @ 0.19.8.
    """
    if json_text.value("/autotuning/enabled") is not True or not isinstance(json_text.data, dict):
        return json_text
    lists = [
        pointer
        for pointer in json_text.spans
        if _TUNED_KEYS.fullmatch(pointer) and isinstance(json_text.value(pointer), list)
    ]
    data = copy.deepcopy(json_text.data)
    for pointer in lists:
        parent, _, name = pointer.rpartition("/")
        block = value_at(data, parent, None)
        if isinstance(block, dict):
            block[name] = "auto"
    of_items = tuple(f"{pointer}/" for pointer in lists)
    spans = {
        pointer: span
        for pointer, span in json_text.spans.items()
        if not pointer.startswith(of_items)
    }
    return replace(json_text, data=data, json_data=data, spans=spans)


Precision = Literal["fp16", "bf16", "fp32"]
Device = Literal["none", "cpu", "nvme"]
DEVICES: Final[tuple[Device, ...]] = ("none", "cpu", "nvme")
Offloaded = Literal["optimizer", "param"]
Number = int | float
OFFLOADED: Final[tuple[Offloaded, ...]] = ("optimizer", "param")
#: Programs that fill in "auto" before DeepSpeed reads the config.
FILLERS: Final = frozenset({"huggingface", "accelerate"})
HANDED_ON: Final = ("/optimizer/params", "/scheduler/params")  #: as they are, to a constructor
#: The usual name of a type, by the names of DeepSpeed's `DtypeEnum` (deepspeed/runtime/config.py).
DTYPES: Final = {
    **dict.fromkeys(("torch.float16", "fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("torch.float32", "fp32", "float32", "float"), "fp32"),
    **dict.fromkeys(("torch.int8", "int8"), "int8"),
    **dict.fromkeys(("torch.bfloat16", "bf16", "bfloat16"), "bf16"),
}
OPTIMIZER: Final = "/optimizer/type"
PARAMS: Final = "/optimizer/params"
ACCUMULATION: Final = "/gradient_accumulation_steps"
BATCH_KEYS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)
_UNKNOWN: Final = object()


@dataclass(frozen=True, kw_only=True)
class Config(DsConfig):
    """One config, read by one release of DeepSpeed on behalf of one consumer."""

    consumer: str  #: one of `CONSUMERS`
    #: whether nothing names the consumer: an "auto" tells it, or it is DeepSpeed by default
    guessed: bool = False
    #: Whether it was found in a folder, where nothing names it: what its program does is unknown.
    unclaimed: bool = False
    release: Release  #: of DeepSpeed
    #: by pointer, what `_parse` gave
    _parsed_values: dict[str, object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def version(self) -> Version:
        return self.release.version

    @cached_property
    def schema(self) -> DeepSpeedSchema:
        return load_schema(self.version)

    @property
    def filled(self) -> bool:
        """Return whether a program fills in "auto" before DeepSpeed trains with the config."""
        return self.consumer in FILLERS or self.tuned

    @property
    def tuned(self) -> bool:
        """Whether DeepSpeed's autotuner reads this config, and writes the ones to train with.

        Source: deepspeed/autotuning/autotuner.py:676 and :753, scheduler.py:366 @ 0.19.8.
        """
        return self.value("/autotuning/enabled") is True

    @property
    def completed(self) -> bool:
        """Return whether batch, clipping and precision are added where the config leaves them out.

        Source: pytorch_lightning/strategies/deepspeed.py @ 2.5.5 (_format_config; so since 1.2).
        """
        return self.consumer == "lightning"

    @property
    def is_empty(self) -> bool:
        """Return whether the file has nothing in it; what a script writes may come later."""
        if self.embedded:
            return False
        return any(deviation.what == "no value at all" for deviation in self.json.deviations)

    @cached_property
    def is_readable(self) -> bool:
        """Whether this is an object read to its end, so that missing keys are known."""
        return self.json.broken is None and isinstance(self.json.data, dict) and not self.is_empty

    def read(self, pointer: str) -> object:
        """The value that the parser gives a key; None for null, "auto" and what isn't known."""
        parsed = self._parsed_value(pointer)
        return None if parsed is _UNKNOWN or parsed == "auto" else parsed

    def number(self, pointer: str) -> Number | None:
        return number_of(self.read(pointer))

    def whole(self, pointer: str) -> int | None:
        """The integer there, also one that is written as a float such as 5e8."""
        return whole_of(self.read(pointer))

    def text(self, pointer: str) -> str | None:
        value = self.read(pointer)
        return value if isinstance(value, str) else None

    def switch(self, pointer: str, default: bool = False) -> bool | None:
        """Whether a flag is on, as Python's `if` reads it; None where that isn't known.

        `default` is for a key that is left out and that the release's table doesn't have.
        """
        if pointer not in self.json.spans and self.schema.key(pointer) is None:
            return default
        parsed = self._parsed_value(pointer)
        return None if parsed is _UNKNOWN else bool(parsed)

    @cached_property
    def stage(self) -> int | None:
        return self.whole(f"{ZERO}/stage")

    @cached_property
    def bf16(self) -> str:
        """The pointer of the bf16 block, which older configs call bfloat16."""
        if not self.has("/bfloat16"):
            return "/bf16"
        key = self.schema.key("/bf16")
        takes_null = key is not None and "null" not in key.refuses  # then null counts as left out
        is_absent = not self.has("/bf16") or (takes_null and self.value("/bf16") is None)
        return "/bfloat16" if is_absent else "/bf16"

    @cached_property
    def precision(self) -> Precision | None:
        """The type that the fp16 and bf16 blocks give the model."""
        states = self.switch("/fp16/enabled"), self.switch(f"{self.bf16}/enabled")
        names: dict[object, Precision] = {
            (True, False): "fp16",
            (False, True): "bf16",
            (False, False): "fp32",
        }
        return names.get(states)

    @property
    def auto_precision(self) -> bool:
        """Return whether the file has "auto" for whether fp16 or bf16 is enabled."""
        return "auto" in (self.value("/fp16/enabled"), self.value(f"{self.bf16}/enabled"))

    def offload(self, what: Offloaded) -> Device | None:
        """Where optimizer states or parameters are kept, by the new keys or the deprecated ones."""
        section = f"{ZERO}/offload_{what}"
        block = self._parsed_value(section)
        if isinstance(block, dict):
            device = self.text(f"{section}/device")
            return next((choice for choice in DEVICES if choice == device), None)
        old_key = "cpu_offload_param" if what == "param" else "cpu_offload"
        is_on = self.switch(f"{ZERO}/{old_key}")
        if is_on is None or block is _UNKNOWN:
            return None
        return "cpu" if is_on else "none"

    def offloads(self, what: Offloaded) -> bool:
        """Return whether they are known to leave the device."""
        return self.offload(what) in ("cpu", "nvme")

    def may_swap(self) -> bool:
        """Return whether something may go to NVMe, so that the block aio is read."""
        may_offload = any(self.offload(what) in ("nvme", None) for what in OFFLOADED)
        return may_offload or self.has("/checkpoint/writer")

    @cached_property
    def optimizer(self) -> str | None:
        """The type of the optimizer that is built, or None.

        In lower case where DeepSpeed ignores case.
        """
        name = self.value("/optimizer/type")
        if not isinstance(name, str) or (name == "auto" and self.filled):
            return None
        return name.lower() if name.lower() in self.schema.optimizers else name

    @cached_property
    def batch(self) -> dict[str, Number]:
        """The batch keys that have a number."""
        numbers = {key: self.number(f"/{key}") for key in BATCH_KEYS}
        return {key: as_hjson(number) for key, number in numbers.items() if number is not None}

    @property
    def accumulates_in(self) -> str | None:
        """The type that gradients accumulate in, as written; None for the model's."""
        return self.text("/data_types/grad_accum_dtype")

    @property
    def sums_in(self) -> str | None:
        """The type that gradients accumulate in, by its usual name; None where it isn't known."""
        return DTYPES.get(self.accumulates_in or "")

    @property
    def is_elastic(self) -> bool:
        """Whether the elasticity block decides the batch, whatever the batch keys are."""
        has_section = self.schema.section("/elasticity") is not None
        return has_section and bool(self.block("/elasticity").get("enabled"))

    def _parsed_value(self, pointer: str) -> object:
        """The parsed value of a key, which is kept: rules ask for the same keys again and again."""
        parsed = self._parsed_values.get(pointer, NOTHING)
        if parsed is NOTHING:
            parsed = self._parsed_values[pointer] = self._parse(pointer)
        return parsed

    def _parse(self, pointer: str) -> object:
        """The value that the parser gives a key; `_UNKNOWN` where it refuses what is written.

        A section that is a pydantic model converts values and drops "auto"; a plain mapping keeps
        what is written.
        """
        parent, section, key, spellings = self.schema.at(pointer)
        place = self._written_at(pointer, spellings)
        if place is None:  # as most keys
            return None if key is None else self._default(pointer, parent, key)
        value = self.value(place)
        if value == "auto" and self.filled:
            return _UNKNOWN

        if section is None or key is None:
            is_handed_on = section is None or section.extra == "taken" or parent in HANDED_ON
            return value if is_handed_on else None
        in_model = section.kind == "model"
        if in_model and (value == "auto" or (value is None and key.optional)):
            return self._default(pointer, parent, key)

        if not in_model:
            is_refused = kind_of_value(as_hjson(value)) in key.refuses
            # The rules on the batch compute with its keys, whatever they are.
            return _UNKNOWN if is_refused and pointer[1:] not in BATCH_KEYS else value
        converted = convert(value, key, PROFILES[self.schema.pydantic])
        return _UNKNOWN if isinstance(converted, Mismatch) else converted

    def _written_at(self, pointer: str, spellings: tuple[str, ...]) -> str | None:
        """The pointer at which a key is written; None where it is left out."""
        written = self.json.spans
        if pointer in written:
            return pointer
        for spelling in spellings:
            if spelling in written:
                return spelling
        return None

    def _default(self, pointer: str, parent: str, key: Key) -> object:
        """The value of a key that is left out: its default, except for two keys of ZeRO.

        The parser takes the stage from the old form of the block, and `overlap_comm` from the
        stage.
        """
        block = self.value(parent, {})
        if pointer == f"{ZERO}/stage" and isinstance(block, bool):  # the old form: true is stage 1
            return int(block)
        is_dropped = block is None or (block == "auto" and not self.filled)
        if not isinstance(block, dict | bool) and not is_dropped:
            return _UNKNOWN  # the parser fails at the block, before its keys
        if pointer == f"{ZERO}/overlap_comm" and self.stage is not None:
            return self.stage == 3
        return key.default


def has_auto(config: DsConfig, least: int = 1) -> bool:
    """Whether at least so many values of a config are "auto", which DeepSpeed never fills in."""
    return sum(value == "auto" for value in leaves(config.json.data)) >= least


def number_of(value: object) -> Number | None:
    """A finite number that a float can hold; true is 1, as in Python."""
    if not isinstance(value, int | float):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return None
    if not is_finite:
        return None
    return int(value) if isinstance(value, bool) else value


def whole_of(value: object) -> int | None:
    """An integer, also one that is written as a float."""
    number = number_of(value)
    return int(number) if number is not None and number == int(number) else None
