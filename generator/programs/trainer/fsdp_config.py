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
from ...text.hjson.text import JsonText
from ...text.options import CommandLine
from ...text.source import Source, escape
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
#: The ZeRO stages that strategies shard like.
_STAGES: Final = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "HYBRID_SHARD_ZERO2": 2}
POLICIES: Final = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpConfig(Values):
    """A file of the keys of `fsdp_config`, which may have the prefix `fsdp_`."""

    document_kind: ClassVar[Kind] = "FSDP config"
    path: str
    values: Mapping[str, object]  #: by name without the prefix
    places: Mapping[str, Location] = field(default_factory=dict)
    target: str | None = None  #: the file that a script's here-document writes it to

    @property
    def name(self) -> str:
        """The name of the file that a program reads."""
        return PurePath(self.target or self.path).name

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
    yield from_text(file.text.path, file.json() if file.is_json else file.yaml())


def from_text(path: str, read: JsonText | Source, target: str | None = None) -> FsdpConfig:
    """The settings of a text: of a file, or one that a script in the file writes to `target`."""
    data = read.data if isinstance(read.data, dict) else {}
    values: dict[str, object] = {}
    places: dict[str, Location] = {}
    # Of a key with and without the prefix the former counts: it comes last.
    for key in sorted(data, key=lambda key: str(key).startswith(PREFIX)):
        name = str(key).removeprefix(PREFIX)
        values[name], places[name] = data[key], read.locate(f"/{escape(str(key))}")
    return FsdpConfig(path=path, values=values, places=places, target=target)


class Setting(NamedTuple):
    """A value with its place."""

    value: object
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """FSDP as a run uses it: by accelerate, or by the Trainer's arguments.

    accelerate has its settings from a config, or from the flags of its launch line.
    """

    values: Mapping[str, object]  #: the settings, by name without the prefix
    places: Mapping[str, Location]  #: of the settings
    where: Location  #: of FSDP as a whole
    by_accelerate: bool
    by_line: bool = False  #: whether a flag of accelerate's launch line asks for FSDP
    flags: frozenset[str] = frozenset()  #: the settings that are flags of that line
    version: int | None  #: 1 or 2; None where it can't be known
    mesh: Mapping[str, Setting] = field(default_factory=dict)  #: accelerate's sizes, as `tp_size`
    arguments: TrainingArguments | None = None  #: the Trainer's, where these use it
    model: Model | None = None  #: where it is known

    def locate(self, name: str) -> Location:
        """The place of a setting, else of all of them."""
        return self.places.get(name, self.where)

    def written(self, name: str, value: object = None) -> str:
        """A setting as its place has it or would have it: `fsdp_version: 2`, `--fsdp_version 2`."""
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
        if text in TRUE:
            return True
        return False if text in FALSE else None

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
        text = self.text("sharding_strategy")
        number = whole_number(self.values.get("sharding_strategy"))
        if number is None:
            number = read_whole(text, 1)
        if number is not None and 0 < number <= len(STRATEGIES):
            return STRATEGIES[number - 1]
        return text


#: Flags of accelerate's launch line that choose how to train, whatever the config's type is.
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
    if not _asks_for_fsdp(config, line):
        return None
    settings: dict[str, Setting] = {}
    where = Location(path="")
    if config is not None:
        where = config.locate("fsdp_config")
        settings = _section(config, "fsdp_config", PREFIX)
    flags: Mapping[str, Setting] = {}
    if line is not None:
        flags = flags_of(line)
        flag = line.argument("--use_fsdp")
        where = flag.where if flag is not None else where
    settings.update(flags)

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


def _asks_for_fsdp(config: AccelerateConfig | None, line: CommandLine | None) -> bool:
    """Whether a launch uses FSDP: by its line, where that chooses how to train, else its config."""
    if line is not None and chooses_way(line):
        return not line.has("--cpu") and line.has("--use_fsdp")
    return config is not None and config.value("distributed_type") == "FSDP"


def _section(config: AccelerateConfig, name: str, prefix: str) -> dict[str, Setting]:
    """The entries of a section of accelerate's config, by their names without a prefix."""
    return {
        str(key).removeprefix(prefix): Setting(value, config.locate(at))
        for key, at, value in config.entries(name)
    }


def _mesh_of(
    config: AccelerateConfig | None, line: CommandLine | None, *, by_line: bool
) -> Mapping[str, Setting]:
    """The sizes of accelerate's mesh; none where it isn't used.

    A line that chooses how to train has to ask for the mesh, too.
    """
    prefix = f"{_MESH}_"
    sizes = _section(config, _MESH, prefix) if config is not None else {}
    if line is None:
        return sizes
    is_used = line.has("--use_parallelism_config") if by_line else bool(sizes)
    if not is_used:
        return {}
    for option in line.options.entries:
        if option.name.startswith(f"--{prefix}"):
            place = line.view(option, None).where_value
            number = line.options.integer(option.name)
            sizes[option.name.removeprefix(f"--{prefix}")] = Setting(number, place)
    return sizes


def is_used(arguments: TrainingArguments) -> bool:
    """Return whether arguments of the Trainer ask for FSDP."""
    if "fsdp" in arguments.redefined:
        return False  # a front end's own option, which may name a preset or a file
    value = arguments.value("fsdp")
    if value is None:  # there, but not known; or not there
        return arguments.has("fsdp")
    return value not in ("", False, "false", "False", [])


def config_of(submission: Submission, arguments: TrainingArguments) -> FsdpConfig | None:
    """The file that arguments name by `fsdp_config`: by its name, else the only one there is."""
    named = arguments.value("fsdp_config")
    if not arguments.has("fsdp_config") or isinstance(named, dict):
        return None
    configs = submission.of(FsdpConfig)
    if named is not None:
        name = PurePath(str(named)).name
        configs = tuple(config for config in configs if config.name == name)
        # What the launch's own file writes is what it reads, and not a copy beside.
        written = tuple(config for config in configs if config.target is not None)
        configs = written or configs
    return configs[0] if len(configs) == 1 else None


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
    values: Mapping[str, object] = {}
    places: Mapping[str, Location] = {}
    if isinstance(inline, dict):
        values = {str(key).removeprefix(PREFIX): value for key, value in inline.items()}
        places = {
            str(key).removeprefix(PREFIX): arguments.places[f"fsdp_config/{key}"]
            for key in inline
            if f"fsdp_config/{key}" in arguments.places
        }
    elif file is not None:
        values, places = file.values, file.places
    elif inline is not None and arguments.has("fsdp_config"):
        default_version = 0  # what the file says, which isn't there, isn't known
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
