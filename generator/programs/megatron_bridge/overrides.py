"""Overrides of Megatron-Bridge's config, as launch lines and files have them.

The program of a launch line is Megatron-Bridge's, or somebody's own that takes such overrides.

**Source**: NVIDIA-NeMo/Megatron-Bridge v0.6.0, scripts/training/run_recipe.py (options with a key:
COMMON_OVERRIDE_FIELDS, :135-153), scripts/performance/argument_parser.py and utils/overrides.py
(options of its programs; they count after the overrides: run_script.py:67);
facebookresearch/hydra @ 1.3.2 (`+` adds a key, `~` removes it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from math import prod
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from ...catalog.model import Model
from ...dataclass import dataclass
from ...findings import Location, Version
from ...numerals import is_whole, python_float, python_int
from ...patterns import lazy_pattern
from ...places import Lines
from ...resources import read_text
from ...submission.launches import Launch
from ...submission.submission import Submission
from ...submission.world import world_of
from ...text.document import FileText, Kind
from ...text.shell.records import Word
from ...text.source import Source, escape
from ...text.wording import LONGEST_SHOWN
from ..pins import numbers
from ..python_around import release_in
from ..releases import Release, newest, release_in_image
from .recipes import RECIPE, model_of

PROGRAM: Final = "run_recipe.py"
#: A program in scripts/performance that submits the job that its options describe.
SUBMITS: Final = "setup_experiment.py"
_PERFORMANCE: Final = ("run_script.py", SUBMITS)
#: Options of these programs for the model, and for the number of GPUs.
_RECIPES: Final = ("-mr", "--model_recipe_name", "--model_name")
_GPUS: Final = ("-ng", "--num_gpus")
BRIDGE: Final = "megatron-bridge"  #: as releases call it
#: The first and the last release that has something, each up to its second number.
Bounds = tuple[Version | None, Version | None]
#: The newest release whose keys and recipes are known.
KNOWN: Final[Version] = (0, 6)
#: An override: `train.train_iters=500`, `+model.fp8=true`, `~peft=`.
_WORD: Final = lazy_pattern(r"([+~]{0,2})([A-Za-z_]\w*(?:\.[\w-]+)*)=(.*)", re.ASCII | re.DOTALL)
#: An option that says what is trained, alone on a line of a script.
_NAMED: Final = lazy_pattern(
    r"^[ \t]{0,40}(--(?:recipe|model|mode))[ \t=]{1,8}([\w.-]{1,200})[ \t\\]{0,8}$",
    re.MULTILINE | re.ASCII,
)
#: Options of the program that set a key.
SHORT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-ms", "--max_steps"), "train.train_iters"),
    **dict.fromkeys(("-gb", "--global_batch_size"), "train.global_batch_size"),
    **dict.fromkeys(("-mb", "--micro_batch_size"), "train.micro_batch_size"),
    **dict.fromkeys(("-sl", "--seq_length"), "dataset.seq_length"),
    **dict.fromkeys(("-tp", "--tensor_model_parallel_size"), "model.tensor_model_parallel_size"),
    **dict.fromkeys(
        ("-pp", "--pipeline_model_parallel_size"), "model.pipeline_model_parallel_size"
    ),
    **dict.fromkeys(("-cp", "--context_parallel_size"), "model.context_parallel_size"),
    **dict.fromkeys(("-ep", "--expert_model_parallel_size"), "model.expert_model_parallel_size"),
    **dict.fromkeys(
        ("-et", "-etp", "--expert_tensor_parallel_size"), "model.expert_tensor_parallel_size"
    ),
    **dict.fromkeys(
        ("-vp", "--virtual_pipeline_model_parallel_size"),
        "model.virtual_pipeline_model_parallel_size",
    ),
    "--lr": "optimizer.lr",
    "--min_lr": "optimizer.min_lr",
    "--warmup_iters": "scheduler.lr_warmup_iters",
    "--pretrained_checkpoint": "checkpoint.pretrained_checkpoint",
    "--save_dir": "checkpoint.save",
    "--load_dir": "checkpoint.load",
    "--save_interval": "checkpoint.save_interval",
}
#: Keys that hardly another config has.
_OWN_KEYS: Final = frozenset(SHORT.values()) - {"optimizer.lr", "optimizer.min_lr"}
#: Switches of the program, which take no value.
SWITCHES: Final = frozenset(
    {"--dry-run", "--dry_run", "--deterministic", "--dump-env", "--dump_env", "-h", "--help"}
)
#: Options of releases before 0.6 alone.
GONE: Final = frozenset({"--hf_path", "--packed_sequence", "--peft_scheme"})
#: What is done in each mode, and with recipes that are named so.
TASKS: Final = {
    "pretrain": "pretraining",
    **dict.fromkeys(("finetune", "sft"), "fine-tuning"),
    **dict.fromkeys(("lora", "dora", "peft"), "adapters"),
}
#: What recipes are called before what they do: `qwen3_8b_sft_config`.
_STEM: Final = lazy_pattern(r"(\w+?)_(?:pretrain|sft|finetune|peft|lora|dora)(?:_\w+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One key, as it is set."""

    key: str
    sign: str  #: `+` adds it, `~` removes it
    text: str  #: the value as it is written; empty where it isn't known
    where: Location
    is_word: bool = True  #: whether Hydra reads it, and not YAML
    is_blank: bool = False  #: whether nothing is written behind its equals sign

    @property
    def integer(self) -> int | None:
        """The value as a whole number; None where it is none."""
        return python_int(self.text)

    @property
    def number(self) -> float | None:
        """The value as a number; None where it is none."""
        return python_float(self.text)

    @property
    def is_null(self) -> bool:
        """Return whether it is set to nothing."""
        return self.text.lower() == "null"

    @property
    def shown(self) -> str:
        """As in messages; a long value is left out."""
        return f"{self.key}={self.text}" if len(self.text) <= LONGEST_SHOWN else self.key


@dataclass(frozen=True, kw_only=True)
class BridgeOverrides:
    """The overrides of a launch line, or of a file of them."""

    document_kind: ClassVar[Kind] = "Megatron-Bridge overrides"

    path: str
    given: tuple[Override, ...]  #: in order; the last of a key counts
    #: the function that makes the config; empty: it isn't known
    recipe: str = ""
    stem: str = ""  #: of a recipe, as `--model` has it
    mode: str = ""  #: pretrain, sft or lora; empty: not given
    dataset: str = ""  #: the kind of data, as an option of the program says
    #: whether no further override can be given
    complete: bool = False
    is_own: bool = False  #: whether the program is somebody's own
    gpus: int | None = None  #: as an option of the program says
    launch: Launch | None = field(default=None, repr=False)
    release: Release = newest(BRIDGE)  #: that the overrides are for
    options: Mapping[str, Word] = field(default_factory=dict, repr=False)  #: of the launch line
    #: the values of these, as far as they are known
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: options of the launch line with nothing behind them
    bare: frozenset[str] = frozenset()
    #: words of the launch line, and lines of the file, that are neither options, nor their values,
    #: nor overrides, with their places
    strays: tuple[tuple[str, Location], ...] = field(default=(), repr=False)

    @cached_property
    def last(self) -> Mapping[str, Override]:
        """What counts of each key."""
        return {each.key: each for each in self.given}

    def get(self, key: str) -> Override | None:
        """The override of a key, if there is one."""
        return self.last.get(key)

    def first(self, keys: Iterable[str]) -> Override | None:
        """The override of the first of several keys that has one."""
        return next(filter(None, map(self.get, keys)), None)

    def integer(self, key: str) -> int | None:
        """The whole number that a key is set to; None where it isn't, or to none."""
        override = self.last.get(key)
        return None if override is None else override.integer

    def lacks(self, *keys: str) -> bool:
        """Return whether surely none of these keys is set, nor a section that they are in."""
        sections = {key.partition(".")[0] for key in keys}
        return self.complete and not {*keys, *sections} & self.last.keys()

    @property
    def is_plain(self) -> bool:
        """Return whether the recipe is the one without a model of its own."""
        return self.recipe == RECIPE

    @property
    def is_public(self) -> bool:
        """Return whether the program is the one whose options are known: there is another of its
        name, for performance.
        """
        launch = self.launch
        if launch is None or launch.program is None or not is_started(launch):
            return False
        folders = "".join(part or "" for part in launch.program.parts)
        return "performance" not in folders and not _is_of_performance(launch)

    @property
    def task(self) -> str:
        """What is trained, by the mode, else by the recipe's name; empty where neither tells."""
        if self.mode in TASKS:
            return TASKS[self.mode]
        named = {task for word, task in TASKS.items() if f"_{word}_" in f"_{self.recipe}_"}
        return named.pop() if len(named) == 1 else ""

    @cached_property
    def model(self) -> Model | None:
        """The model of the recipe, where both are known."""
        if self.is_own:
            return None
        match = _STEM.fullmatch(self.recipe)
        stem = self.stem or (match[1] if match is not None else "")
        return model_of(stem)

    @property
    def heads(self) -> int | None:
        """The model's heads of attention: given, or those of its recipe."""
        if "model.num_attention_heads" in self.last or self.model is None:
            return self.integer("model.num_attention_heads")
        return self.model.softmax.heads

    @property
    def experts(self) -> int | None:
        """The model's experts: given, or those of its recipe."""
        if "model.num_moe_experts" in self.last or self.model is None:
            return self.integer("model.num_moe_experts")
        return self.model.experts


@dataclass(frozen=True, kw_only=True)
class BridgeConfig(BridgeOverrides):
    """The overrides of a YAML file that a program merges into its recipe's config."""

    document_kind: ClassVar[Kind] = "Megatron-Bridge config"


@lru_cache(maxsize=1)
def known_keys() -> Mapping[str, Mapping[str, str]]:
    """The fields of each section of the config, with their kinds: int, float, bool, a choice, or
    empty; the sections themselves by "".
    """
    data: Mapping[str, Mapping[str, str]] = json.loads(read_text(__package__, "bridge_keys.json"))
    return data


@lru_cache(maxsize=1)
def key_bounds() -> Mapping[str, Bounds]:
    """The first and the last release with a key, of those that not every release has."""
    return {key: bounds_of(text) for key, text in known_keys()["releases"].items()}


@lru_cache(maxsize=1)
def recipe_bounds() -> Mapping[str, Bounds]:
    """The first and the last release with a recipe, by its whole name."""
    data: Mapping[str, list[str]] = json.loads(read_text(__package__, "recipe_names.json"))
    return {name: bounds_of(text) for text, names in data.items() for name in names}


def bounds_of(text: str) -> Bounds:
    """Two releases as numbers, of `0.4-0.5`; None for an end that is open."""
    first, _, last = text.partition("-")
    return numbers(first) if first else None, numbers(last) if last else None


def read_file(file: FileText) -> Iterator[BridgeOverrides]:
    """The overrides of a file of one a line, as dsgen writes `overrides.txt`."""
    lines, given, strays = Lines(file.text), list[Override](), list[tuple[str, Location]]()
    offset = 0
    for line in file.text.content.splitlines(keepends=True):
        word = "" if line.startswith("#") else line.strip()
        match = _WORD.fullmatch(word)
        where = lines.locate(offset + len(line) - len(line.lstrip()))
        if match is not None:
            given.append(_override(match, where))
        elif word:
            strays.append((word, where))
        offset += len(line)
    yield BridgeOverrides(path=file.text.path, given=tuple(given), strays=tuple(strays))


def _override(match: re.Match[str], where: Location) -> Override:
    """A key as a word sets it."""
    sign, key, text = match.groups()
    return Override(key=key, sign=sign, text=text, where=where, is_blank=not text)


def read_config(source: Source) -> Iterator[BridgeConfig]:
    """The overrides of a YAML file: its sections' keys, with dots between.

    Nothing of a file whose keys are another's, or that a run itself wrote of its config.

    **Source**: src/megatron/bridge/training/utils/omegaconf_utils.py:142-149 (config_filepath).
    """
    data = source.data if isinstance(source.data, dict) else {}
    overrides = tuple(_flat(data, source))
    bridge_keys = [each.key for each in overrides if _is_known(each.key)]
    has_own_keys = len(_OWN_KEYS.intersection(bridge_keys)) > 1
    are_most = 3 * len(bridge_keys) >= 2 * len(overrides)  # two thirds
    if has_own_keys and are_most and "_target_" not in data:
        yield BridgeConfig(path=source.path, given=overrides, is_own=True)


def kind_of(key: str) -> str:
    """The kind of a field's value; empty of a section and where nothing is known of it."""
    section, _, field_name = key.partition(".")
    return known_keys().get(section, {}).get(field_name, "")


def _is_known(key: str) -> bool:
    section, _, field_name = key.partition(".")
    return field_name.partition(".")[0] in known_keys().get(section, ())


def _flat(
    data: Mapping[Any, object], source: Source, before: str = "", within: str = ""
) -> Iterator[Override]:
    """The values of a mapping and of those in it; an object that is made of one is one value."""
    for key, value in data.items():
        name, pointer = f"{before}{key}", f"{within}/{escape(str(key))}"
        is_number = kind_of(name) in ("int", "float", "bool")
        if isinstance(value, dict) and value and "_target_" not in value and not is_number:
            yield from _flat(value, source, f"{name}.", pointer)
        else:
            text = source.texts.get(pointer) or _written(value)
            yield Override(
                key=name, sign="", text=text, where=source.locate(pointer), is_word=False
            )


def _written(value: object) -> str:
    """A value of YAML as an override has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{key}:{_written(inner)}" for key, inner in value.items())
        return f"{{{','.join(pairs)}}}"
    return "" if value == "???" else str(value)  # OmegaConf's sign for a value that is missing


def _name_of(launch: Launch) -> str:
    """The program of a launch line, without its folder."""
    program = launch.program
    name = (program.parts[-1] or "") if program is not None and program.parts else ""
    return PurePosixPath(name).name


def is_started(launch: Launch) -> bool:
    """Return whether a launch line starts Megatron-Bridge's program."""
    return _name_of(launch) == PROGRAM


def _has_performance(launch: Launch) -> bool:
    """Return whether a launch line starts one of Megatron-Bridge's programs of performance."""
    return _name_of(launch) in _PERFORMANCE and _is_of_performance(launch)


def _is_of_performance(launch: Launch) -> bool:
    """Return whether a launch line names a model and a number of GPUs as those programs do."""
    options = {word.raw.partition("=")[0] for word in launch.arguments}
    return not options.isdisjoint(_GPUS) and not options.isdisjoint(_RECIPES)


def _takes_overrides(launch: Launch) -> bool:
    """Return whether a launch line gives a Python program of somebody's own overrides: a key of
    `train` among them, and one of another section.
    """
    if not _name_of(launch).endswith(".py"):
        return False
    matches = (_WORD.fullmatch(word.prefix or word.value or "") for word in launch.arguments)
    keys = (match[2].partition(".") for match in matches if match is not None)
    sections = {section for section, _, field in keys if field in known_keys().get(section, ())}
    return "train" in sections and len(sections) > 1


def reads_overrides(launch: Launch) -> bool:
    """Return whether a launch line gives its program overrides of Megatron-Bridge's config."""
    return is_started(launch) or _has_performance(launch) or _takes_overrides(launch)


@dataclass(slots=True)
class _Line:
    """The words of a launch line, sorted by what they are."""

    launch: Launch
    is_own: bool  #: whether the program is somebody's own
    overrides: list[Override] = field(default_factory=list)  #: those of options among them
    #: overrides that options of a program of performance set, which count after all others
    last_overrides: list[Override] = field(default_factory=list)
    options: dict[str, Word] = field(default_factory=dict)  #: by name, the word that has the name
    values: dict[str, Word] = field(default_factory=dict)  #: by option, the word with its value
    bare: set[str] = field(default_factory=set)  #: options with nothing behind them
    strays: list[tuple[str, Location]] = field(default_factory=list)
    complete: bool = True  #: whether each word is known

    def read(self) -> None:
        """Sort the words."""
        words, index = self.launch.arguments, 0
        while index < len(words):
            word = words[index]
            where = self.launch.script.locate(word)
            match = _WORD.fullmatch(word.prefix if word.value is None else word.value)
            if match is not None:
                self.overrides.append(_of_word(match, word, where))
            elif word.value is None:
                self.complete = False
            elif word.value.startswith("-"):
                index += self._read_option(word.value, index)
            else:
                self.strays.append((word.value, where))
            index += 1

    def _read_option(self, text: str, index: int) -> int:
        """Read the option at a word, and return how many words behind it are its value."""
        words = self.launch.arguments
        word = words[index]
        name, equals, attached = text.partition("=")
        self.options[name] = word
        behind = words[index + 1] if index + 1 < len(words) else None
        if equals or name in SWITCHES or (behind is not None and _is_next(behind)):
            behind = None  # no value of this option
        if behind is None and not attached and "$" not in word.raw:
            self.bare.add(name)
        self.values[name] = behind or word
        value = attached if behind is None else behind.value
        if name in SHORT and value and not self.is_own:
            self._set_by_option(name, value, self.launch.script.locate(word))
        return 0 if behind is None else 1

    def _set_by_option(self, name: str, value: str, where: Location) -> None:
        """Note the override that an option stands for."""
        overrides = self.overrides if is_started(self.launch) else self.last_overrides
        text = "null" if value == "None" else value
        # The program itself quotes a text for Hydra: it is no word of the user's.
        override = Override(key=SHORT[name], sign="", text=text, where=where, is_word=False)
        overrides.append(override)

    def texts(self) -> dict[str, str]:
        """The values of options, as far as they are known: behind them, or an equals sign."""
        values = {
            name: (word.value or "").partition("=")[2] if word is self.options[name] else word.value
            for name, word in self.values.items()
        }
        return {name: value for name, value in values.items() if value}

    def named(self) -> dict[str, str]:
        """The options with their values, as far as they are known."""
        known = {name: word.value for name, word in self.values.items() if word.value is not None}
        if self.complete:
            return known
        # The words may be in an array that a loop adds to: its options are lines of the script.
        return dict(_NAMED.findall(self.launch.script.text.content)) | known


def _of_launch(launch: Launch) -> BridgeOverrides:
    """The overrides on a launch line, its options among them."""
    is_own = not (is_started(launch) or _has_performance(launch))
    line = _Line(launch, is_own)
    line.read()
    named = line.named()
    recipe, stem, mode, dataset = (
        "" if name in line.bare else named.get(name, "").rpartition("=")[2]
        for name in ("--recipe", "--model", "--mode", "--dataset")
    )
    gpus = next((named[name].rpartition("=")[2] for name in _GPUS if name in named), "")
    return BridgeOverrides(
        path=launch.script.text.path,
        given=(*line.overrides, *line.last_overrides),
        is_own=is_own,
        gpus=None if is_own else python_int(gpus),
        recipe=recipe,
        stem=stem,
        mode=mode,
        dataset=dataset,
        complete=line.complete,
        launch=launch,
        options=line.options,
        texts=line.texts(),
        bare=frozenset(line.bare),
        strays=tuple(line.strays),
    )


def _of_word(match: re.Match[str], word: Word, where: Location) -> Override:
    """A key as a word of a script sets it; without its text where a variable isn't known."""
    override = _override(match, where)
    if word.value is None:
        return replace(override, text="", is_blank=False)
    return replace(override, is_blank=override.is_blank and "$" not in word.raw)


def _is_next(word: Word) -> bool:
    """Return whether a word after an option is the next option or override, and no value of it."""
    text = word.raw.strip("\"'")
    return _WORD.fullmatch(text) is not None or (text[:1] == "-" and not is_whole(text[1:2]))


def overrides_in(submission: Submission) -> Iterator[BridgeOverrides]:
    """The overrides of each launch line and each file; together, where one line reads one file."""
    launches = [launch for launch in submission.launches if reads_overrides(launch)]
    for config in submission.of(BridgeConfig):
        readers = [launch for launch in submission.launches if _names(launch, config)]
        if len(readers) != 1:
            yield _released(submission, config)
            continue
        (reader,) = readers
        launches = [launch for launch in launches if launch is not reader]
        line = _of_launch(reader)
        together = _together(line, config, (*config.given, *line.given))  # the line counts last
        yield _released(submission, replace(together, complete=line.complete))

    lines = [_of_launch(launch) for launch in launches]
    files = [file for file in submission.of(BridgeOverrides) if not isinstance(file, BridgeConfig)]
    if len(lines) == len(files) == 1:
        (line,), (file,) = lines, files
        lines, files = [], [_together(line, file, (*line.given, *file.given))]
    for overrides in (*lines, *files):
        yield _released(submission, overrides)


def _released(submission: Submission, overrides: BridgeOverrides) -> BridgeOverrides:
    """Overrides with the release that they are for."""
    return replace(overrides, release=_release(submission, overrides))


def _names(launch: Launch, config: BridgeConfig) -> bool:
    """Return whether a launch line names a file, behind an option or an equals sign."""
    name = PurePosixPath(config.path).name
    paths = ((word.path or "").rpartition("=")[2] for word in launch.arguments)
    return any(PurePosixPath(path).name == name for path in paths)


def _together(
    line: BridgeOverrides, file: BridgeOverrides, given: tuple[Override, ...]
) -> BridgeOverrides:
    """A file's overrides with what the launch line that reads it says."""
    return replace(
        file,
        given=given,
        recipe=line.recipe,
        stem=line.stem,
        mode=line.mode,
        dataset=line.dataset,
        complete=True,
        launch=line.launch,
        options=line.options,
        texts=line.texts,
        bare=line.bare,
        strays=(*line.strays, *file.strays),
    )


def _release(submission: Submission, overrides: BridgeOverrides) -> Release:
    """The release that the job says, else the script's image, else the repository; else the
    newest.
    """
    job = submission.job
    if job is not None and job.framework.name == BRIDGE:
        return Release(program=BRIDGE, version=job.megatron_bridge_version, where="the job spec")
    script = overrides.launch.script.text if overrides.launch is not None else None
    image = release_in_image(BRIDGE, script.path, script.content) if script is not None else None
    return image or release_in(submission, BRIDGE, overrides.path)


@dataclass(frozen=True, kw_only=True)
class BridgeRun:
    """Overrides with the world that they are for."""

    overrides: BridgeOverrides
    gpus: int | None


def runs_in(submission: Submission) -> Iterator[BridgeRun]:
    """The runs of a submission, each with its number of GPUs, if that is known."""
    of_runs = list(overrides_in(submission))
    world = world_of(submission)
    # Of several runs, each has the GPUs that its own line starts; known where all start as many.
    processes = [claim.value for claim in world.claims_on("processes")]
    start_as_many = len(processes) == len(of_runs) and len(set(processes)) == 1
    gpus = world.gpus if len(of_runs) == 1 or start_as_many else None
    for overrides in of_runs:
        submits = overrides.launch is not None and _name_of(overrides.launch) == SUBMITS
        started_here = None if submits else gpus
        yield BridgeRun(overrides=overrides, gpus=started_here or overrides.gpus)


def product_of(overrides: BridgeOverrides, keys: Iterable[str]) -> int | None:
    """The product of degrees; None where one isn't known. The plain recipe's are all 1."""
    product = 1
    for key in keys:
        override = overrides.get(key)
        if override is None and overrides.is_plain:
            continue
        degree = None if override is None else override.integer
        if degree is None or degree < 1:
            return None
        product *= degree
    return product


def known_part_of(overrides: BridgeOverrides, keys: Iterable[str]) -> int:
    """The product of the degrees that are known: whatever the others are, it divides the GPUs."""
    values = (overrides.integer(key) for key in keys)
    return prod(value for value in values if value is not None and value > 0)
