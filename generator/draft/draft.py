"""`Keys`, a spec that is being written, and `Draft`, a spec from files with all that it leaves out.

Also the options of the launch: as its line gives them, and as its program's parser reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from ..dataclass import dataclass
from ..findings import Location
from ..job.arguments import is_option
from ..numerals import python_float, whole
from ..patterns import lazy_pattern
from ..programs.megatron.arguments import MegatronArguments
from ..programs.megatron.options import Flavour, MegatronOption, option_table
from ..programs.megatron_bridge.overrides import BridgeOverrides
from ..programs.trainer.training_arguments import TrainingArguments, known_arguments
from ..secrets import Hider, mask
from ..submission.launches import Launch
from ..text.shell.records import Word
from ..text.wording import escape, value_at
from .find import ExistingRun

#: Why a value that looks like a secret, or is named like one, isn't carried over.
SECRET: Final = "it may be a secret, which a spec doesn't hold"
#: How reasons begin that aren't told of scripts that dsgen wrote: `generate` writes these lines
#: again.
_OF_SCRIPTS: Final = (
    "its value is not in the files",
    "whether it is given depends",
    "a command of the script",
)
_WIDTH: Final = 160  #: of what is left out, in a message
#: What stands for values that aren't known, in an option of a file.
_UNKNOWN: Final = "..."
#: A place that AzureML mounts, as a command and a spec have it.
_MOUNTED: Final = lazy_pattern(
    r"[\"']?(\$\{\{(?:inputs|outputs)\.\w+\}\})[\"']?([^$`\"'\s]*)[\"']?"
)


class LeftOut(NamedTuple):
    """One thing of the files that is not in the spec, or not as it was."""

    what: str  #: as the file has it: `--data-path $DATA`, `zero_optimization.stage`
    where: Location
    why: str

    def __str__(self) -> str:
        place = PurePath(self.where.path).name
        line = f":{self.where.line}" if self.where.line else ""
        # Masked before it is cut: half a secret isn't known as one.
        what = " ".join(re.sub(r"\\?\n", " ", mask(self.what)).split())
        if len(what) > _WIDTH:
            what = f"{what[:_WIDTH]} ..."
        return f"{place}{line}: {what}: {self.why}"


#: How a comment begins on a value that no file says.
ASSUMED: Final = "assumed: "


class Given(NamedTuple):
    """An option of the training program as its launch line gives it."""

    name: str  #: as written, `--lr`
    words: tuple[str, ...]  #: the option and its values
    where: Location
    known: bool  #: whether every value is known; others are in `words` as they are written
    key: str  #: the name by which the program's own parser calls it

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(slots=True, kw_only=True)
class Keys:
    """The spec's keys so far."""

    spec: dict[str, Any] = field(default_factory=dict)
    #: why a key has a value that no file says, by dotted path
    comments: dict[str, str] = field(default_factory=dict)

    def set(self, path: str, value: object) -> None:
        """Set a key by its dotted path, where a value is known."""
        if value is None or value in ((), [], {}, ""):
            return
        *sections, last = _parts(path)
        mapping = self.spec
        for section in sections:
            mapping = mapping.setdefault(section, {})
        mapping[last] = value

    def get(self, path: str | Sequence[str]) -> Any:
        """The value of a key; None where there is none."""
        return value_at(self.spec, "".join(f"/{escape(part)}" for part in _parts(path)))

    def drop(self, path: str | Sequence[str]) -> None:
        """Take a key or item out, and the mappings and lists that are empty then."""
        parts = _parts(path)
        for end in range(len(parts), 0, -1):
            holder, key, value = self.get(parts[: end - 1]), parts[end - 1], self.get(parts[:end])
            is_around = end < len(parts)
            if is_around and value not in ({}, []):
                return
            if isinstance(holder, list) and value is not None:
                del holder[whole(key)]
            elif isinstance(holder, dict):
                holder.pop(key, None)


def _parts(path: str | Sequence[str]) -> list[str]:
    """The keys of a path: dotted, or one by one where they have dots."""
    return path.split(".") if isinstance(path, str) else list(path)


class Parser(NamedTuple):
    """The parser that reads the options, as far as it is known."""

    flavour: Flavour | None = None  #: of Megatron's; None: another program's
    trainer: bool = False  #: whether it is the Trainer's, of TrainingArguments
    #: Whether it is a front end's, in which flags have values: `--sequence_parallel true`.
    explicit_flags: bool = False

    def option(self, key: str) -> MegatronOption | None:
        """Megatron's option of that name; None where it has none, or the parser is another's."""
        name = key.replace("_", "-") if self.explicit_flags else key
        return option_table(self.flavour).get(name) if self.flavour is not None else None

    def _argument(self, key: str) -> Mapping[str, Any]:
        """The Trainer's argument of that name; empty where there is none."""
        return known_arguments().get(key.lstrip("-").replace("-", "_"), {}) if self.trainer else {}

    def key(self, written: str) -> str:
        """The name that the parser calls an option by."""
        option = self.option(written)
        if option is not None:
            return option.name
        return written.replace("_", "-") if self.trainer else written

    def default(self, key: str) -> Any:
        """The value of an option that is left out; None where it has none, or it isn't known."""
        option = self.option(key)
        return option.default if option is not None else self._argument(key).get("default")

    def most_values(self, key: str) -> int | None:
        """The most values that an option takes; None where that isn't known or bounded."""
        option = self.option(key)
        if option is not None:
            if option.nargs in ("+", "*"):
                return None
            if option.kind == "flag" and option.nargs is None and not self.explicit_flags:
                return 0
            return 1
        return None if self._argument(key).get("type") in (None, "list") else 1


@dataclass(slots=True, kw_only=True)
class Draft(Keys):
    """The spec of a run, what it leaves out of the files, and options to carry over."""

    found: ExistingRun  #: the files
    left: dict[LeftOut, None] = field(default_factory=dict)  #: each once, in order
    parser: Parser = field(default_factory=Parser)
    options: tuple[Given, ...] = ()  #: of the program
    overrides: BridgeOverrides | None = None  #: of a run of Megatron-Bridge
    ours: frozenset[str] = frozenset()  #: paths of scripts that dsgen wrote
    hide: Hider  #: hides the files' secrets in a text
    refused: LeftOut | None = None  #: why no spec can say what the files run

    def leave(self, what: str, where: Location, why: str) -> None:
        """Note that the spec doesn't have something of the files, and why."""
        if not (where.path in self.ours and why.startswith(_OF_SCRIPTS)):
            self.left[LeftOut(self.hide(what), where, self.hide(why))] = None


def options_of_launch(launch: Launch, parser: Parser) -> Iterator[Given]:
    """The options of a launch line, in order."""
    group: list[Word] = []  # an option and its values so far
    for word in (*launch.arguments, None):  # None ends the last option
        if group and _ends_before(word, group, parser):
            yield _option_of(group, launch, parser)
            group = []
        if word is not None:
            group.append(word)


def _option_of(group: Sequence[Word], launch: Launch, parser: Parser) -> Given:
    """The option that a group of words gives."""
    first = group[0]
    beginning = first.value
    if beginning is None:
        beginning = first.prefix or first.raw
    name = beginning.partition("=")[0]
    values = [_mounted(word) or word.value for word in group]
    words = tuple(
        word.raw if value is None else value for word, value in zip(group, values, strict=True)
    )
    option = parser.option(name)
    is_flag = option is not None and option.kind == "flag"
    if parser.explicit_flags and is_flag and words[1:] == ("true",):
        words = words[:1]
    return Given(
        name=name,
        words=words,
        where=launch.script.locate(first),
        known=None not in values,
        key=parser.key(name),
    )


def _mounted(word: Word) -> str | None:
    """A word without its quotes, where it is a place that AzureML mounts."""
    match = _MOUNTED.fullmatch(word.raw)
    return "".join(match.groups()) if match else None


def _ends_before(word: Word | None, group: Sequence[Word], parser: Parser) -> bool:
    """Return whether an option ends before a word; the last one ends before `None`."""
    name, equals, _ = _beginning(group[0]).partition("=")
    has_attached_value = bool(equals)  # which is its only one
    if has_attached_value or not is_option(name):
        return True
    if word is None or is_option(_beginning(word)):
        return True
    key = parser.key(name)
    most = parser.most_values(key)
    if most is not None and len(group) > most:
        return True
    # Behind the first value of an option that isn't Megatron's, a variable may hold options.
    may_be_options = word.value is None and not word.prefix
    has_a_value = len(group) > 1
    return has_a_value and may_be_options and parser.option(key) is None


def _beginning(word: Word) -> str:
    """What is known of a word from its first character on."""
    return word.prefix or word.raw.strip("\"'")


def options_of_file(arguments: MegatronArguments, parser: Parser) -> Iterator[Given]:
    """The options of a file of arguments."""
    for option in arguments.given:
        words = (option.written, *option.text.split())
        yield Given(
            name=option.written,
            words=words,
            where=option.where,
            known=_UNKNOWN not in words,
            key=parser.key(option.written),
        )
    for stray in arguments.strays:
        name = stray.word
        yield Given(name=name, words=(name,), where=stray.where, known=True, key=name)


def options_of_values(arguments: TrainingArguments) -> Iterator[Given]:
    """The arguments of a YAML or JSON file as options of the same names."""
    for name, value in arguments.values.items():
        if value is None:
            continue
        items = value if isinstance(value, list) else [value]
        are_plain = all(isinstance(item, str | int | float | bool) for item in items)
        texts = (str(item).lower() if isinstance(item, bool) else str(item) for item in items)
        option = f"--{name}"
        yield Given(
            name=option,
            words=(option, *texts) if are_plain else (option, _UNKNOWN),
            where=arguments.locate(name),
            known=are_plain,
            key=option.replace("_", "-"),
        )


def values_of(words: Sequence[str]) -> tuple[str, ...]:
    """The values of an option; `true` of one that is given alone."""
    first, *others = words
    name, sign, value = first.partition("=")
    if sign and is_option(name):
        return value, *others
    return tuple(others) or ("true",)


def same_values(words: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two options' values are read alike."""
    return len(words) == len(other) and all(map(same_value, words, other))


def same_value(value: object, other: object) -> bool:
    """Return whether two values are the same text, number or truth."""
    # As texts, for True equals 1.0 in Python: `true` and `1` aren't the same.
    return value == other or str(_read(value)) == str(_read(other))


_TRUE: Final = ("true", "yes", "t", "y")
_FALSE: Final = ("false", "no", "f", "n")


def _read(value: object) -> object:
    """The truth or the number that a text is, else the text without quotes."""
    text = str(value).strip().strip("'\"")
    if text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    number = python_float(text)
    return text if number is None else number
