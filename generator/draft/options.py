"""Options of a training program: as its launch line gives them, and as its parser names them and fills them in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ..dataclass import dataclass
from ..programs.launching.launch_line import Launch
from ..programs.megatron.arguments import MegatronArguments
from ..programs.megatron.options import Flavour, option_table
from ..programs.shell.records import Word
from ..programs.trainer.training_arguments import TrainingArguments, known_arguments
from .draft import Given, told

_TRUE: Final = frozenset({"true", "yes", "t", "y"})
_FALSE: Final = frozenset({"false", "no", "f", "n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """What is known of the parser that reads the options."""

    flavour: Flavour | None = None  #: of Megatron's; None: another program's
    trainer: bool = False  #: whether it is that of TrainingArguments

    def key(self, written: str) -> str:
        """The name that the parser calls an option by."""
        if self.flavour is not None:
            option = option_table(self.flavour).get(written)
            return option.name if option is not None else written
        return written.replace("_", "-") if self.trainer else written

    def default(self, key: str) -> Any:
        """The value of an option that is left out; None where it has none, or it isn't known."""
        if self.flavour is not None:
            option = option_table(self.flavour).get(key)
            return option.default if option is not None else None
        entry = known_arguments().get(key.lstrip("-").replace("-", "_"), {}) if self.trainer else {}
        return entry.get("default")

    def knows(self, key: str) -> bool:
        """Whether it is known how many values an option takes."""
        return self.flavour is not None and option_table(self.flavour).has(key)

    def most(self, key: str) -> int | None:
        """How many values an option can have; None where that isn't known, or as many as one likes."""
        if self.trainer:
            kind = known_arguments().get(key.lstrip("-").replace("-", "_"), {}).get("type")
            return None if kind in (None, "list") else 1
        option = option_table(self.flavour).get(key) if self.flavour is not None else None
        if option is None or option.nargs in ("+", "*"):
            return None
        return 0 if option.kind == "flag" and option.nargs is None else 1

    def is_switch(self, key: str) -> bool:
        """Whether an option can be given but not taken back."""
        option = option_table(self.flavour).get(key) if self.flavour is not None else None
        return option is not None and option.kind == "flag"


def is_option(word: str) -> bool:
    """Whether a word begins an option, and is no negative number."""
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word[1] != "."


def grouped(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each option with the words that follow it; words before the first option are groups of their own."""
    group: list[str] = []
    for word in words:
        if is_option(word) or not group or not is_option(group[0]):
            if group:
                yield tuple(group)
            group = []
        group.append(word)
    if group:
        yield tuple(group)


def options_of_launch(launch: Launch, parser: Parser) -> Iterator[Given]:
    """The options of a launch line, in order."""
    group: list[Word] = []
    for word in (*launch.arguments, None):
        begins = word is None or is_option(_beginning(word))
        unknown = word is not None and len(group) > 1 and word.value is None and not word.prefix
        unknown = unknown and not parser.knows(parser.key(_beginning(group[0]).partition("=")[0]))
        if group and (begins or unknown or not is_option(_beginning(group[0])) or _is_full(group, parser)):
            yield _given(group, launch, parser)
            group = []
        if word is not None:
            group.append(word)


def _beginning(word: Word) -> str:
    return word.prefix or word.raw.strip("\"'")


def _is_full(words: Sequence[Word], parser: Parser) -> bool:
    """Whether an option has all the values that it can have."""
    name, sign, _ = _beginning(words[0]).partition("=")
    most = parser.most(parser.key(name))
    return most is not None and len(words) > (0 if sign else most)


def _given(words: Sequence[Word], launch: Launch, parser: Parser) -> Given:
    first = words[0].value if words[0].value is not None else words[0].prefix or words[0].raw
    name = str(first).partition("=")[0]
    return Given(
        name=name,
        words=tuple(told(word) for word in words),
        where=launch.script.locate(words[0]),
        known=all(word.value is not None for word in words),
        key=parser.key(name),
    )


def options_of_file(arguments: MegatronArguments, parser: Parser) -> Iterator[Given]:
    """The options of a file of arguments."""
    for one in arguments.given:
        words = (one.written, *(one.text.split() if one.text else ()))
        yield Given(one.written, words, one.where, one.text == "" or "..." not in words, parser.key(one.written))
    for stray in arguments.strays:
        yield Given(stray.word, (stray.word,), stray.where, True, stray.word)


def options_of_values(arguments: TrainingArguments) -> Iterator[Given]:
    """The arguments of a YAML or JSON file as options of the same names."""
    for name, value in arguments.values.items():
        items = value if isinstance(value, list) else [value]
        plain = all(isinstance(item, str | int | float | bool) for item in items)
        words = tuple(_text(item) for item in items) if plain else ("...",)
        option = f"--{name}"
        key = option.replace("_", "-")
        if value is not None:
            yield Given(option, (option, *words), arguments.locate(name), plain, key)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_of(words: Sequence[str]) -> tuple[str, ...]:
    """The values of an option; `true` of one that is given alone."""
    name, sign, value = words[0].partition("=")
    return (value, *words[1:]) if sign and is_option(name) else tuple(words[1:]) or ("true",)


def same_values(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two options' values are read alike."""
    return len(one) == len(other) and all(map(same_value, one, other))


def same_value(one: object, other: object) -> bool:
    """Whether two values are the same text, number or truth."""
    return one == other or str(_read(one)) == str(_read(other))


def _read(value: object) -> object:
    text = str(value).strip().strip("'\"")
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    try:
        return float(text)
    except ValueError:
        return text


def last_of_each(options: Iterable[Given]) -> dict[str, Given]:
    """The options by key; of one that is given again, the last counts."""
    return {one.key: one for one in options}
