"""FSDP's settings: of an accelerate config, and of the JSON that the Trainer's `fsdp_config` names.

Both are read as one record, whose keys have no prefix. Their defaults differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import PurePath
from typing import ClassVar, Final, NamedTuple

from ...catalog import Model
from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import read_whole
from ...places import Values
from ...submission.submission import Submission
from ...text.document import FileText, Kind
from ...text.options import CommandLine
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
#: As ZeRO stages.
_STAGES: Final = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "HYBRID_SHARD_ZERO2": 2}
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


class Setting(NamedTuple):
    """A value with its place."""

    value: object
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """FSDP as a run uses it: by accelerate, or by the Trainer's arguments.

    accelerate has its settings from a config, or from the flags of its launch line.
    """

    values: Mapping[str, object]  #: by name without the prefix
    places: Mapping[str, Location]  #: of the values
    where: Location  #: the place of all of them
    by_accelerate: bool
    by_line: bool = False  #: whether a flag of accelerate's launch line asks for it
    flags: frozenset[str] = frozenset()  #: the settings that are flags of that line
    #: 1 or 2; None where it can't be known
    version: int | None
    mesh: Mapping[str, Setting] = field(default_factory=dict)  #: accelerate's sizes, as `tp_size`
    arguments: TrainingArguments | None = None  #: the Trainer's, where these use it
    model: Model | None = None  #: where it is known

    def locate(self, name: str) -> Location:
        """The place of a setting, else of all of them."""
        return self.places.get(name, self.where)

    def written(self, name: str, value: object = None) -> str:
        """A setting as it is written where it is, or would be: `fsdp_version: 2`."""
        if name in self.flags or (self.by_line and name not in self.places):
            return f"--{PREFIX}{name}" if value is None else f"--{PREFIX}{name} {value}"
        prefix = PREFIX if self.by_accelerate else ""
        return f"{prefix}{name}" if value is None else f"{prefix}{name}: {value}"

    def switch(self, name: str, default: bool | None) -> bool | None:
        """A setting that is on or off; None where it is neither, as text that nothing reads."""
        value = self.values.get(name)
        if value is None:
            return default
        text = str(value).lower()
        return text in TRUE if text in {*TRUE, *FALSE} else None

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
    def running(self) -> str:
        """The strategy that runs, by its name in version 1."""
        words = words_of(self.arguments) if self.arguments is not None else ()
        named = next((word.upper() for word in words if word.upper() in STRATEGIES), "")
        if self.version == 2:
            by_word = named != "SHARD_GRAD_OP"
            freed = self.switch("reshard_after_forward", by_word)
            return "SHARD_GRAD_OP" if freed is False else STRATEGIES[0]
        if self.by_accelerate:  # its launcher passes a strategy on in any case
            return self.strategy or STRATEGIES[0]
        return named or self.text("reshard_after_forward") or STRATEGIES[0]

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage that the strategy shards like; None where it shards nothing."""
        return _STAGES.get(self.running)

    @property
    def offloads(self) -> bool:
        """Whether parameters, gradients and the optimizer are on the host."""
        name = "offload_params" if self.by_accelerate else "cpu_offload"
        by_word = self.arguments is not None and "offload" in words_of(self.arguments)
        return bool(self.switch(name, False)) or by_word

    @property
    def strategy(self) -> str:
        """The strategy of version 1 that is named, by its name; "" where none is."""
        value = self.text("sharding_strategy")
        number = whole_number(self.values.get("sharding_strategy"))
        number = read_whole(value, 1) if number is None else number
        if number is not None:
            return STRATEGIES[number - 1] if 0 < number <= len(STRATEGIES) else value
        return value


#: Flags of accelerate's launch line that choose how to train, before the config's type.
WAYS: Final = (
    "--multi_gpu",
    "--tpu",
    "--tpu_cluster",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_megatron_lm",
)
_FLAG: Final = f"--{PREFIX}"
_MESH: Final = "parallelism_config"


def flags_of(line: CommandLine) -> Mapping[str, Setting]:
    """The settings that flags of accelerate's launch line set, by name without the prefix.

    The value is None where it can't be known.
    """
    return {
        option.name.removeprefix(_FLAG): Setting(option.text, line.view(option, None).where_value)
        for option in line.options.entries
        if option.name.startswith(_FLAG)
    }


def chooses_way(line: CommandLine) -> bool:
    """Return whether accelerate's launch line chooses how to train, whatever its config says."""
    return line.has(*WAYS, "--cpu")


def of_accelerate(config: AccelerateConfig | None, line: CommandLine | None = None) -> Fsdp | None:
    """The settings of a launch by accelerate; None where it doesn't use FSDP.

    Flags of the line count before the keys of the config.

    Source: accelerate commands/launch.py (_validate_launch_command) @ 1.15.0; version 1 where none
    is named.
    """
    by_line = line is not None and line.has(*WAYS)
    if line is not None and line.has("--cpu"):
        return None
    if line is not None and by_line:
        if not line.has("--use_fsdp"):
            return None
    elif config is None or config.value("distributed_type") != "FSDP":
        return None

    settings: dict[str, Setting] = {}
    if config is not None:
        for name, at, value in config.entries("fsdp_config"):
            assert config is not None
            settings[str(name).removeprefix(PREFIX)] = Setting(value, config.locate(at))
    flags = flags_of(line) if line is not None else {}
    settings.update(flags)

    where = Location(path="")
    if config is not None:
        where = config.locate("fsdp_config")
    if line is not None:
        asked = line.argument("--use_fsdp")
        where = asked.where if asked is not None else where

    stated = settings.get("version")
    return Fsdp(
        values={name: setting.value for name, setting in settings.items()},
        places={name: setting.where for name, setting in settings.items()},
        where=where,
        by_accelerate=True,
        by_line=by_line,
        flags=frozenset(flags),
        version={"1": 1, "2": 2}.get(str(stated.value)) if stated is not None else 1,
        mesh=_mesh_of(config, line, by_line=by_line),
    )


def _mesh_of(
    config: AccelerateConfig | None, line: CommandLine | None, *, by_line: bool
) -> Mapping[str, Setting]:
    """The sizes of accelerate's mesh; none where it isn't used.

    A line that chooses how to train has to ask for the mesh, too.
    """
    sizes: dict[str, Setting] = {}
    if config is not None:
        for name, at, value in config.entries(_MESH):
            assert config is not None
            sizes[str(name).removeprefix(f"{_MESH}_")] = Setting(value, config.locate(at))
    is_used = line is not None and line.has("--use_parallelism_config") if by_line else bool(sizes)
    if not is_used:
        return {}
    if line is not None:
        for option in line.options.entries:
            if line is not None and option.name.startswith(f"--{_MESH}_"):
                place = line.view(option, None).where_value
                number = line.options.integer(option.name)
                sizes[option.name.removeprefix(f"--{_MESH}_")] = Setting(number, place)
    return sizes


def is_used(arguments: TrainingArguments) -> bool:
    """Return whether arguments of the Trainer ask for FSDP."""
    if "fsdp" in arguments.redefined:
        return False  # a front end's own option, which may name a preset or a file
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
        every = tuple(config for config in every if PurePath(config.path).name == name)
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
    values = dict(file.values) if file is not None else {}
    places = dict(file.places) if file is not None else {}
    if isinstance(inline, dict):
        values = {str(name).removeprefix(PREFIX): value for name, value in inline.items()}
        places = {
            str(name).removeprefix(PREFIX): arguments.places[f"fsdp_config/{name}"]
            for name in inline
            if f"fsdp_config/{name}" in arguments.places
        }
    elif inline is not None and file is None and arguments.has("fsdp_config"):
        default_version = 0  # the file is not there
    stated = str(values.get("version", default_version))
    holder: FsdpConfig | TrainingArguments = file or arguments
    return Fsdp(
        values=values,
        places=places,
        where=holder.locate("fsdp_config"),
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
