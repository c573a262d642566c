"""Hugging Face TrainingArguments: from YAML, from JSON, or from a launch line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import python_float, python_int
from ...patterns import lazy_pattern
from ...places import Values, holds_variable
from ...resources import read_text
from ...submission.launches import Launch
from ...submission.repository import find_programs, has_programs, program_path
from ...text.around import text_around, until_next_check
from ...text.document import FileText, Kind
from ...text.hjson.text import JsonText
from ...text.shell.records import Word
from ...text.source import Source, escape
from ...text.wording import whole_number
from ..launching.front_ends import FrontEnd, front_ends
from ..python_around import declares_its_own, hands_options_on
from ..releases import release_of

#: Names of the sequence length: those of transformers' examples, TRL, LLaMA-Factory, axolotl, and
#: scripts of one's own.
LENGTHS: Final = (
    "model_max_length",
    "max_seq_length",
    "max_seq_len",
    "max_length",
    "block_size",
    "cutoff_len",
    "sequence_length",
    "seq_length",
)
#: Arguments that only TrainingArguments has: a program with one of these on its launch line accepts
#: all of them.
_TELLING: Final = frozenset(
    [
        "ddp_timeout",
        "do_train",
        "eval_strategy",
        "evaluation_strategy",
        "load_best_model_at_end",
        "logging_first_step",
        "logging_strategy",
        "overwrite_output_dir",
        "per_device_eval_batch_size",
        "report_to",
        "save_only_model",
        "save_strategy",
        "save_total_limit",
        "warmup_ratio",
    ]
)
#: Arguments that other programs have as well.
_COMMON: Final = frozenset(["output_dir", "per_device_train_batch_size", "num_train_epochs"])
#: Options of programs that have the common arguments and no Trainer: DeepSpeed-Chat, some examples
#: of transformers, Megatron.
_FOREIGN: Final = frozenset(
    ["zero_stage", "num_warmup_steps", "deepspeed_config", "tensor_model_parallel_size"]
)
# transformers src/transformers/hf_argparser.py:36-46
_TRUE: Final = frozenset(["yes", "true", "t", "y", "1"])
_FALSE: Final = frozenset(["no", "false", "f", "n", "0"])
FLAGS: Final = _TRUE | _FALSE
#: The text of a Python object, in what a program writes down of its run: no parser reads it back.
_OBJECT: Final = lazy_pattern(r"<\w+[ .]|[A-Za-z_]\w*\([a-z_]\w*=")
#: A program's own class of arguments.
_SUBCLASS: Final = lazy_pattern(
    r"^class \w+\([\w., ]*(?:TrainingArguments|[A-Z]\w*Config)\)", re.MULTILINE
)
_PARSER: Final = lazy_pattern(r"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser)\(")
#: TRL's classes of arguments, and the arguments to which they give another default.
#: Source: trl/trainer/{sft,grpo,dpo,base}_config.py @ 0.24.
_TRL_CLASS: Final = lazy_pattern(
    r"\b(?:SFT|GRPO|DPO|KTO|PPO|ORPO|RLOO|CPO|Reward|OnlineDPO)Config\b"
)
_REDEFINED_BY_TRL: Final = frozenset(
    ["bf16", "gradient_checkpointing", "learning_rate", "logging_steps", "remove_unused_columns"]
)
#: The learning rates of TRL's classes.
#: Source: huggingface/trl trl/trainer/{sft,grpo,dpo,kto}_config.py @ f2cd5771.
_TRL_RATES: Final = {"SFTConfig": 2e-5, "GRPOConfig": 1e-6, "DPOConfig": 1e-6, "KTOConfig": 1e-6}
_FIELD: Final = lazy_pattern(r"^[ \t]+(\w+)[ \t]*:[^=\n]+=", re.MULTILINE)  #: of a class
_MODULE: Final = lazy_pattern(r"(?!.*\.(?:py|sh)$)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_MOST_BYTES: Final = 1_000_000  #: of a program; one by hand has far fewer
_NO_VALUE: Final = object()  #: the value of an option that takes one and has none
_LONGEST_NUMBER: Final = 40  #: characters; nothing that is counted here is longer


#: The Python types of values, by the types of known arguments.
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int, float),
    "float": (int, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An argument's value, and whether it is written or the default."""

    value: object
    written: bool
    text: str  #: `learning_rate 1e-05`, with `(the default)`


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBatch:
    """The sequences that a replica trains on for each optimizer step, as the arguments set them."""

    micro: int
    sequences: int  #: micro × the steps of accumulation
    text: str  #: `per_device_train_batch_size 8 × gradient_accumulation_steps 2`
    written: bool  #: whether both are written, not the default
    name: str  #: the argument that changes the batch most easily


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingArguments(Values):
    """Arguments by Python name (`per_device_train_batch_size`), with TrainingArguments' types.

    An argument whose value can't be known, such as a variable's, has a place and no value. One that
    isn't of its type has the text as written.
    """

    document_kind: ClassVar[Kind] = "training arguments"
    path: str
    values: Mapping[str, object]
    #: of each value; of a key `b` of a mapping `a` as `a/b`
    places: Mapping[str, Location] = field(default_factory=dict)
    launch: Launch | None = None  #: the launch line that has the arguments
    by: str = ""  #: the front end whose file has the arguments; empty: none
    #: whether these are all; unknown words of a launch line may be further arguments
    complete: bool = True
    #: Arguments whose value isn't known where they aren't given: the program's own class may have
    #: another default, or a branch of the script gives them.
    redefined: frozenset[str] = frozenset()
    #: the defaults of TRL's class, which the program parses
    by_class: Mapping[str, object] = field(default_factory=dict)
    #: Arguments of a launch line that take a value and have none, and whether that is because a
    #: variable behind them is empty.
    bare: Mapping[str, bool] = field(default_factory=dict)
    #: whether they may be another program's: this one isn't there, or hands them on
    assumed: bool = False

    @property
    def launches(self) -> Sequence[Launch]:
        """The launch line that has the arguments; empty for those of a file."""
        return () if self.launch is None else (self.launch,)

    @property
    def is_on_front_end(self) -> bool:
        """Whether a front end reads the arguments first and may change them."""
        front_end = self.front_end_row
        # one that only launches a program, such as TRL's, hands them on as they are
        return front_end is not None and not front_end.launched_by

    @property
    def _front_end(self) -> str:
        """The front end that reads the arguments from its launch line or file; empty: none."""
        return self.launch.front_end if self.launch is not None else self.by

    def refuses(self, name: str) -> bool:
        """Return whether a front end reads the arguments that is known not to have this one."""
        front_end = self.front_end_row
        return front_end is not None and front_end.refuses(f"--{name}")

    @property
    def front_end_row(self) -> FrontEnd | None:
        """The front end that reads the arguments first; None without one."""
        return front_ends().get(self._front_end)

    def value(self, name: str, default: object = None) -> object:
        """The value of an argument; `default` where none is given."""
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Return whether an argument is there, its value known or not."""
        return name in self.values or name in self.places

    def lacks(self, name: str) -> bool:
        """Return whether an argument is certainly not there, so that its default holds."""
        return self.complete and not self.has(name) and name not in self.redefined

    def locate(self, name: str) -> Location:
        """The place of an argument, else the file."""
        return self.places.get(name, Location(path=self.path))

    @property
    def names(self) -> frozenset[str]:
        names = (*self.values, *self.places)
        return frozenset(name for name in names if "/" not in name)  # without keys of mappings

    def number(self, name: str) -> int | float | None:
        """A number that is written; None where there is none, or something else."""
        value = self.value(name)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def integer(self, name: str) -> int | None:
        """An integer that is written; None where there is none, or something else."""
        return whole_number(self.value(name))

    def is_on(self, name: str) -> bool:
        return self.value(name) is True

    def stated(self, name: str) -> Stated | None:
        """An argument's value or default, with its text; None if unknown or of a wrong type."""
        entry = known_arguments()[name]
        if self.has(name):
            value = self.value(name)
            if isinstance(value, _PYTHON_TYPES.get(entry["type"], (int, float, str))):
                return Stated(value=value, written=True, text=f"{name} {value}")
            return None
        if not self.lacks(name) or "default" not in entry:
            return None
        default = entry["default"]
        return Stated(value=default, written=False, text=f"{name} {default} (the default)")

    def setting(self, name: str) -> object:
        """An argument's value, or its default, by the program's own class too.

        None if unknown or of a wrong type.
        """
        stated = self.stated(name)
        if stated is None and self.complete and not self.has(name):
            return self.by_class.get(name)
        return stated.value if stated is not None else None

    @property
    def batch(self) -> ReplicaBatch | None:
        """The batch of a replica; None where it isn't known, or transformers searches for it."""
        micro = self.stated("per_device_train_batch_size")
        steps = self.stated("gradient_accumulation_steps")
        if micro is None or steps is None or self.is_on("auto_find_batch_size"):
            return None
        samples, passes = whole_number(micro.value), whole_number(steps.value)
        if samples is None or passes is None:
            return None
        return ReplicaBatch(
            micro=samples,
            sequences=samples * passes,
            text=f"{micro.text} × {steps.text}",
            written=micro.written and steps.written,
            name="gradient_accumulation_steps" if steps.written else "per_device_train_batch_size",
        )


@cache
def _releases() -> Mapping[str, Mapping[str, Any]]:
    """When TrainingArguments got and lost its arguments; written by scripts/."""
    text = read_text(__package__, "argument_releases.json")
    releases: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return releases


def gone_arguments() -> Mapping[str, Mapping[str, str]]:
    """Arguments of older transformers by name.

    `release` is the first minor release without it, `instead` what to write now.
    """
    return _releases()["gone"]


def new_arguments() -> Mapping[str, str]:
    """By argument, the first minor release of transformers that has it, if that is after 4.28."""
    return _releases()["since"]


@cache
def known_arguments() -> Mapping[str, Mapping[str, Any]]:
    """The arguments of transformers 5.23 by name: `type`, `default`, `choices`.

    Written by scripts/.
    """
    text = read_text(__package__, "training_arguments.json")
    arguments: Mapping[str, Mapping[str, Any]] = json.loads(text)["arguments"]
    return arguments


class TrlClass(NamedTuple):
    """A class of TRL's whose fields parsers take as options."""

    name: str
    fields: frozenset[str]  #: of all releases, without those of TrainingArguments
    on_trainer: bool  #: whether it has those as well


@cache
def trl_classes() -> tuple[TrlClass, ...]:
    """TRL's classes of arguments; written by scripts/."""
    classes = json.loads(read_text(__package__, "trl_classes.json"))["classes"]
    return tuple(
        TrlClass(name, frozenset(entry["fields"]), entry["trainer"])
        for name, entry in classes.items()
    )


@lru_cache(maxsize=1024)
def begins_argument(name: str) -> bool:
    """Tell whether the name of a known argument begins so."""
    return any(each.startswith(name) for each in known_arguments())


def from_file(path: str, read: JsonText | Source) -> TrainingArguments:
    """The arguments of a JSON or YAML file."""
    values = read.data if isinstance(read.data, dict) else {}
    places = {name: read.locate(f"/{escape(name)}") for name in values}
    known = {name: value for name, value in values.items() if not holds_variable(value)}
    return TrainingArguments(path=path, values=known, places=places)


def read_file(file: FileText) -> Iterator[TrainingArguments | Finding]:
    """The arguments that a file has, and what is wrong with its text."""
    if not file.is_json:
        yield from file.yaml().findings
    arguments = from_file(file.text.path, file.json() if file.is_json else file.yaml())
    if not is_record(arguments.values):
        yield arguments


def is_record(values: Mapping[str, object]) -> bool:
    """Whether a program recorded these values of its run: a Python object's text is among them."""
    return any(isinstance(value, str) and _OBJECT.match(value) for value in values.values())


def from_launch(launch: Launch) -> TrainingArguments | None:
    """The arguments of a launch line whose program may accept TrainingArguments, by its options.

    None where these are another program's, as those of transformers' examples without a Trainer.
    """
    options = list(_options(launch.arguments))
    names = {name for name, _, _ in options}
    program = program_path(launch) or ""
    if len(names & _COMMON) < 2 or names & _FOREIGN or program.endswith("_no_trainer.py"):
        return None
    return _on_line(launch, options, program, None)


def from_launches(launches: Iterable[Launch]) -> Iterator[TrainingArguments]:
    """The arguments on the launch lines of programs that accept TrainingArguments."""
    for launch in launches:
        options = list(_options(launch.arguments))
        names = {name for name, _, _ in options}
        front_end = front_ends().get(launch.front_end)
        if front_end is not None:
            if front_end.engine != "trainer" or not names & known_arguments().keys():
                continue
        elif not names & (_COMMON | _TELLING) or names & _FOREIGN:
            continue

        program = program_path(launch) or ""
        is_front_ends = any(row.has_module(program) for row in front_ends().values())
        if _MODULE.fullmatch(program):  # `-m src.train`
            program = f"{program.replace('.', '/')}.py"
        file = next(iter(find_programs(program, launch.script.text.path)), None)
        is_parsed = file is not None and _parses_them(file)
        is_sure = front_end is not None or is_front_ends or is_parsed
        if not is_sure and not _look_like_the_trainers(options):
            continue
        # A program that is there may have options of the same names but no TrainingArguments.
        if file and not program.startswith("/") and declares_its_own(file, _TELLING | _COMMON):
            continue

        yield _on_line(launch, options, program, file, front_end)


def _look_like_the_trainers(options: Sequence[_Option]) -> bool:
    """Whether options can be TrainingArguments alone: some common ones, and a sign of the Trainer.

    A sign is an argument that only TrainingArguments has, or a file behind `--deepspeed` or
    `--fsdp_config`, which are switches of other programs.
    """
    names = {name for name, _, _ in options}
    common = len(names & _COMMON)
    if common and names & _TELLING:
        return True
    names_file = any(
        name in ("deepspeed", "fsdp_config") and value is not True for name, _, value in options
    )
    return common > 1 and names_file


def _on_line(
    launch: Launch,
    options: Sequence[_Option],
    program: str,
    file: Path | None,
    front_end: FrontEnd | None = None,
) -> TrainingArguments:
    """The arguments that the options of a launch line are."""
    in_branches = _in_branches(launch)
    redefined = in_branches
    if file is not None:
        redefined |= _redefined(file)
    if front_end is not None:
        redefined |= _redefined_by(front_end)

    path = launch.script.text.path
    last = {name: value for name, _, value in options}  # the last of each counts
    by_class: Mapping[str, object] = {}
    if file is not None and not last.keys() & {"fp16", "config"}:
        by_class = _by_trl(program, file, path)
    if file is not None:
        assumed = hands_options_on(file)
    else:
        assumed = program.endswith(".py") and has_programs(path)
    return TrainingArguments(
        path=path,
        values={
            name: value
            for name, value in last.items()
            if value not in (None, _NO_VALUE) and name not in in_branches
        },
        places={name: launch.script.locate(word) for name, word, _ in options},
        launch=launch,
        complete=front_end is None and not launch.is_cut and not _may_hide(launch.arguments),
        redefined=redefined,
        by_class=by_class,
        bare={
            name: launch.is_left_empty(word) for name, word, value in options if value is _NO_VALUE
        },
        assumed=assumed,
    )


def _in_branches(launch: Launch) -> frozenset[str]:
    """The arguments that only some branches of the script give, so that they aren't known."""
    texts = (text or "" for word in launch.arguments for text in word.perhaps)
    names = [_name(text) for text in texts if text.startswith("--")]
    return frozenset((*names, *(name.removeprefix("no_") for name in names)))


def _redefined_by(front_end: FrontEnd) -> frozenset[str]:
    """The arguments to which a front end may give another default.

    Its own may have the names of arguments that TrainingArguments had once. One that only launches
    a program trains by classes that have transformers' arguments as they are.
    """
    names = frozenset(option[2:] for option in front_end.options)
    return names.difference(known_arguments()) if front_end.launched_by else names


def _by_trl(program: str, file: Path, path: str) -> Mapping[str, object]:
    """The defaults of TRL's own classes that a program parses; none where a class of the program's
    own may have others, or a release before 0.19 is named.

    **Source:** huggingface/trl trl/trainer/base_config.py:105 @ 1.9.0; before 0.19, v0.18.2
    trl/trainer/sft_config.py.
    """
    text = text_around(file, file.parent, _MOST_BYTES)
    sets_bf16 = '"bf16"' in text or "bf16=" in text
    if not _TRL_CLASS.search(text) or _SUBCLASS.search(text) or sets_bf16:
        return {}
    release = release_of("trl", path) or release_of("trl", program)
    if release is not None and not release.certain(lambda version: version >= (0, 19)):
        return {}
    defaults: dict[str, object] = {"bf16": True}
    rates = {_TRL_RATES.get(name) for name in _TRL_CLASS.findall(text)}
    if "learning_rate" not in text and len(rates) == 1:
        (rate,) = rates
        if rate is not None:
            defaults["learning_rate"] = rate
    return defaults


def _parses_them(program: Path) -> bool:
    """Return whether a program parses its options as TrainingArguments, or as a class of TRL's."""
    text = text_around(program, program.parent, _MOST_BYTES)
    if not _PARSER.search(text):
        return False
    return "TrainingArguments" in text or _TRL_CLASS.search(text) is not None


@until_next_check(1024)
def _redefined(program: Path) -> frozenset[str]:
    """The arguments to which the class that a program parses may give another default."""
    text = text_around(program, program.parent, _MOST_BYTES)
    names = frozenset[str]()
    if _SUBCLASS.search(text):
        names |= frozenset(_FIELD.findall(text))
    if _TRL_CLASS.search(text):
        names |= _REDEFINED_BY_TRL
    return names


def _may_hide(words: tuple[Word, ...]) -> bool:
    """Whether an unknown word may be an option or several: `$EXTRA`, but not `--seed $SEED`."""
    before = ""
    for word in words:
        is_known = word.value is not None or word.prefix.startswith("--")
        for text in word.perhaps or (word.prefix if is_known else None,):
            if text is None and not _takes_value(before):
                return True
            before = text or ""
    return False


def _takes_value(text: str) -> bool:
    """Whether a text is an option that takes the next word as its value."""
    if not text.startswith("--") or "=" in text:
        return False
    return not known_arguments().get(_name(text), {}).get("alone")


def _name(text: str) -> str:
    """An option's Python name."""
    return text[2:].partition("=")[0].replace("-", "_")


#: An option's Python name, word and value. The value is None where it can't be known, and
#: `_NO_VALUE` where there is none.
_Option = tuple[str, Word, object]


def _options(words: tuple[Word, ...]) -> Iterator[_Option]:
    """The options among the words of a launch line."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        spelled, equals, _ = word.prefix.partition("=")
        if not spelled.startswith("--") or len(spelled) < 3:
            continue
        values = list[str | None]()
        if equals:
            values.append(None if word.value is None else word.value.partition("=")[2])
        while not equals and index < len(words) and not words[index].prefix.startswith("--"):
            values.append(words[index].value)
            index += 1
        yield _option(_name(spelled), word, values)


def _option(name: str, word: Word, values: Sequence[str | None]) -> _Option:
    """An option with the value that its texts are; a text that isn't known is None."""
    entry = known_arguments().get(name)
    if entry is None:
        positive = name.removeprefix("no_")
        if positive != name and known_arguments().get(positive, {}).get("negated"):
            return positive, word, False
        return name, word, values[0] if values else True
    if not values:
        return name, word, True if entry.get("alone") else _NO_VALUE
    if entry["type"] == "list":
        return name, word, None if None in values else list(values)
    first = values[0]
    return name, word, None if first is None else read_value(first, entry["type"])


def read_value(text: str, kind: str) -> object:
    """A launch line's text converted to an argument's type; the text itself where it can't be."""
    if kind == "bool" and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if kind in ("int", "float") and len(text) <= _LONGEST_NUMBER:
        number = python_int(text) if kind == "int" else python_float(text)
        return text if number is None else number
    return text


def not_negative(value: object) -> int | float | None:
    """The value if it is a finite number of at least 0, else None; a switch is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < inf else None
