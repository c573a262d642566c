"""FSDP's settings: of an accelerate config, and of the JSON that the Trainer's `fsdp_config` names.

Both are read as one record, whose keys have no prefix. Their defaults differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import PurePath
from typing import ClassVar, Final

from ...catalog import Model
from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import read_whole
from ...places import Values
from ...submission.submission import Submission
from ...text.document import FileText, Kind
from ...text.source import escape
from ...text.wording import whole_number
from .accelerate import FALSE, TRUE, AccelerateConfig
from .training_arguments import TrainingArguments

PREFIX: Final = "fsdp_"
#: accelerate's order of the strategies, which may be written as numbers from 1 on.
#: Source: accelerate utils/constants.py (FSDP_SHARDING_STRATEGY) @ 1.15.0.
STRATEGIES: Final = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "HYBRID_SHARD_ZERO2",
)
POLICIES: Final = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpConfig(Values):
    """A file of the keys of `fsdp_config`; with a prefix they count before those without."""

    document_kind: ClassVar[Kind] = "FSDP config"
    path: str
    values: Mapping[str, object]  #: by name without the prefix
    places: Mapping[str, Location] = field(default_factory=dict)

    def value(self, name: str, default: object = None) -> object:
        """The value of a key; `default` where there is none."""
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Return whether a key is there."""
        return name in self.values

    def locate(self, name: str) -> Location:
        """The place of a key, else the file."""
        return self.places.get(name, Location(path=self.path))


def read_file(file: FileText) -> Iterator[FsdpConfig | Finding]:
    """The settings that a file has, and what is wrong with its text."""
    if not file.is_json:
        yield from file.yaml().findings
    read = file.json() if file.is_json else file.yaml()
    data = read.data if isinstance(read.data, dict) else {}
    # with the prefix last, so that these count
    names = sorted(data, key=lambda name: str(name).startswith(PREFIX))
    yield FsdpConfig(
        path=file.text.path,
        values={str(name).removeprefix(PREFIX): data[name] for name in names},
        places={str(n).removeprefix(PREFIX): read.locate(f"/{escape(str(n))}") for n in names},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """FSDP as a run uses it: by accelerate's config, or by the Trainer's arguments."""

    holder: AccelerateConfig | FsdpConfig | TrainingArguments
    values: Mapping[str, object]  #: by name without the prefix
    by_accelerate: bool
    #: 1 or 2; None where it can't be known
    version: int | None
    arguments: TrainingArguments | None = None  #: the Trainer's, where these use it
    model: Model | None = None  #: where it is known

    def locate(self, name: str) -> Location:
        """The place of a setting, else of all of them."""
        if isinstance(self.holder, AccelerateConfig):
            section = "fsdp_config"
            for full in (f"{PREFIX}{name}", name):
                if self.holder.has(f"{section}/{full}"):
                    return self.holder.locate(f"{section}/{full}")
            return self.holder.locate(section)
        known = isinstance(self.holder, FsdpConfig) and name in self.holder.places
        return self.holder.locate(name if known else "fsdp_config")

    def switch(self, name: str, default: bool | None) -> bool | None:
        """A setting that is on or off; None where it is neither, as text that nothing reads."""
        value = self.values.get(name)
        if value is None:
            return default
        text = str(value).lower()
        return True if text in TRUE else False if text in FALSE else None

    def text(self, name: str, default: str = "") -> str:
        """A setting in capitals; accelerate takes any case."""
        value = self.values.get(name)
        return default if value is None else str(value).upper()

    @property
    def policy(self) -> str:
        """The wrap policy, with its default."""
        return self.text("auto_wrap_policy", "NO_WRAP" if self.by_accelerate else POLICIES[0])

    @property
    def units(self) -> tuple[str, ...] | None:
        """The classes that are wrapped, as accelerate splits them; `None` where none is named."""
        value = self.values.get("transformer_layer_cls_to_wrap")
        if value is None or self.policy != POLICIES[0]:
            return None
        if isinstance(value, list) and not self.by_accelerate:
            value = ",".join(map(str, value))
        return tuple(str(value).split(","))

    @property
    def strategy(self) -> str:
        """The strategy of version 1 that is named, by its name; "" where none is."""
        value = self.text("sharding_strategy")
        number = whole_number(self.values.get("sharding_strategy"))
        number = read_whole(value, 1) if number is None else number
        if number is not None:
            return STRATEGIES[number - 1] if 0 < number <= len(STRATEGIES) else value
        return value


def of_accelerate(config: AccelerateConfig) -> Fsdp | None:
    """The settings of an accelerate config; None where it doesn't use FSDP.

    Source: accelerate commands/launch.py:513, 1270 @ 1.15.0: version 1 where none is named.
    """
    if config.value("distributed_type") != "FSDP":
        return None
    values = {
        str(name).removeprefix(PREFIX): value for name, _, value in config.entries("fsdp_config")
    }
    stated = values.get("version", 1)
    version = {"1": 1, "2": 2}.get(str(stated))
    return Fsdp(holder=config, values=values, by_accelerate=True, version=version)


def is_used(arguments: TrainingArguments) -> bool:
    """Return whether arguments of the Trainer ask for FSDP."""
    off = (None, "", False, "false", "False")
    value = arguments.value("fsdp")
    return arguments.has("fsdp") and (value is None or value not in (*off, []))


def config_of(submission: Submission, arguments: TrainingArguments) -> FsdpConfig | None:
    """The file that arguments name by `fsdp_config`: by its name, else the only one there is."""
    named = arguments.value("fsdp_config")
    if not arguments.has("fsdp_config") or isinstance(named, dict):
        return None
    every = submission.of(FsdpConfig)
    if named is not None:
        name = PurePath(str(named)).name
        every = tuple(one for one in every if PurePath(one.path).name == name)
    return every[0] if len(every) == 1 else None


def of_arguments(
    submission: Submission, arguments: TrainingArguments, default_version: int = 2
) -> Fsdp | None:
    """The settings of the Trainer's arguments; None where these don't use FSDP.

    `default_version`: of the release, where the settings name none.
    """
    if not is_used(arguments):
        return None
    inline = arguments.value("fsdp_config")
    file = config_of(submission, arguments)
    holder: FsdpConfig | TrainingArguments = file or arguments
    values = dict(file.values) if file is not None else {}
    if isinstance(inline, dict):
        values = {str(name).removeprefix(PREFIX): value for name, value in inline.items()}
    elif inline is not None and file is None and arguments.has("fsdp_config"):
        default_version = 0  # the file is not there
    stated = str(values.get("version", default_version))
    return Fsdp(
        holder=holder,
        values=values,
        by_accelerate=False,
        version={"1": 1, "2": 2}.get(stated),
        arguments=arguments,
    )


def words_of(arguments: TrainingArguments) -> tuple[str, ...]:
    """The words of `--fsdp "full_shard auto_wrap"`; none of a bare flag."""
    value = arguments.value("fsdp")
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(map(str, value)) if isinstance(value, list) else ()
