"""Words of a command line against the options of a parser, as argparse takes them apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ...facts.placeholders import IN_WORDS
from ...findings import Location
from .options import MegatronOption, OptionTable

_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse reads such a word as a value
_INTEGER: Final = re.compile(r"\s*[+-]?\d+(?:_\d+)*\s*", re.ASCII)
_VARIABLE: Final = re.compile(r"[$`*?]")
#: In capitals, of several words, or by its words; `<image>` is a token.
#: Of bounded length: what is tried for every `<` of a line stays little.
_PLACEHOLDER: Final = re.compile(
    r"<\s{0,9}(?:[A-Z][A-Z0-9_]{0,99}|[A-Za-z][^<>]{0,99}[ -][^<>]{0,99}"
    r"|[^<>]{0,99}(?:your|path|dir)[^<>]{0,99})\s{0,9}>"
)
_OF_OPTIONS: Final = re.compile(r"ARG|OPT|FLAG|EXTRA|PARAM|CMD|@|\*", re.IGNORECASE)
_MOST_WORDS: Final = 8  # of a placeholder
_MOST_DIGITS: Final = 18  # no option accepts a longer number, and it is slow to convert


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWord:
    """One word with its place; `value` is None where it can't be known, `begins` what is known of its beginning."""

    value: str | None
    begins: str
    where: Location
    variables: tuple[str, ...] = ()  #: those that the shell puts in it
    written: str = ""  #: as written; of a word that is there on a condition only, all that is known

    @property
    def conditional(self) -> str | None:
        """The text of a word that is there on a condition; None where it is there, or its text isn't known."""
        text = self.written.strip("\"'")
        return text if self.value is None and not self.begins and text and not _VARIABLE.search(text) else None

    @property
    def may_be_options(self) -> bool:
        """Whether it is unknown, and from a variable that holds options by its name: `$EXTRA_ARGS`."""
        return self.value is None and any(map(_OF_OPTIONS.search, self.variables))


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOption:
    """An option as it is given."""

    name: str  #: the option's own, where an alias is written
    written: str  #: as written
    value: object  #: typed; None where it can't be known or is not of the option's type
    text: str  #: the values as written, for a message
    problem: str | None  #: why the parser refuses the values
    where: Location
    is_choice: bool = False  #: whether the parser has a list of what it accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A word that the parser doesn't know: an option, or a value that belongs to none."""

    word: str
    where: Location
    after: str | None = None  #: the option before it, as written

    @property
    def is_option(self) -> bool:
        """Whether it is written as an option."""
        return self.word.startswith("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedWords:
    """What the words give. `complete`: no unknown word can hold options."""

    given: tuple[GivenOption, ...]
    strays: tuple[Stray, ...]
    complete: bool
    unsure: frozenset[str] = frozenset()  #: options that are given on a condition of the script
    unfilled: tuple[Stray, ...] = ()  #: placeholders that somebody is to fill in


def parse_words(words: Sequence[PlacedWord], table: OptionTable) -> ParsedWords:
    """The options among `words`, in their order."""
    given, strays, unsure = list[GivenOption](), list[Stray](), set[str]()
    complete, index, foreign = True, 0, False  # foreign: after an option of the script's own, whose values these may be
    words, unfilled = _unfilled(words)
    while index < len(words):
        word = words[index]
        index += 1
        name, sign, explicit = (word.value if word.value is not None else word.begins).partition("=")
        option = table.get(name) if name.startswith("-") else None
        if option is None:
            if word.conditional is not None:
                named = table.get(re.split(r"[\s=]", word.conditional, maxsplit=1)[0])
                unsure |= {named.name} if named else set()
            elif word.value is None:
                complete = complete and word.begins.startswith("-")
            elif _is_option(word.value):
                strays.append(Stray(word=name, where=word.where))
            elif not foreign:
                strays.append(Stray(word=word.value, where=word.where, after=given[-1].written if given else None))
            foreign = foreign or word.value is None or _is_option(word.value)
            continue
        foreign = False
        if sign:
            values: list[str | None] = [None if word.value is None else explicit]
            given.append(_given(option, name, values, word.where, explicit=True))
            continue
        if word.value is None:  # an option whose name isn't written to its end
            complete = False
            continue
        values = []
        for value in _values(words, index, option, table):
            complete = complete and not (value.may_be_options and option.nargs is not None)
            values.append(value.value)
        index += len(values)
        given.append(_given(option, name, values, word.where))
    known = ParsedWords(given=tuple(given), strays=tuple(strays), complete=complete, unsure=frozenset(unsure))
    return replace(known, unfilled=tuple(unfilled)) if unfilled else known


def _unfilled(words: Sequence[PlacedWord]) -> tuple[list[PlacedWord], list[Stray]]:
    """The words, of which none with a placeholder such as `<path to the data>` is known; and the placeholders."""
    known: list[PlacedWord] = []
    found: list[Stray] = []
    index = 0
    while index < len(words):
        word, start = words[index], index
        index += 1
        if _opens(word.begins):
            rest = range(index, min(index + _MOST_WORDS, len(words)))
            index = next((place + 1 for place in rest if ">" in words[place].begins), index)
        text = " ".join(_as_written(one) for one in words[start:index])
        if match := _PLACEHOLDER.search(text):
            found.append(Stray(word=match.group(), where=word.where))
            word = replace(word, value=None, begins=text[: match.start()])
        known.append(word)
    return known, found


def _as_written(word: PlacedWord) -> str:
    """What a word begins with; all of one that the shell's reader left as a placeholder, so that it isn't known."""
    return word.written if word.value is None and not word.begins and IN_WORDS.match(word.written) else word.begins


def placeholder_around(word: str, line: str) -> str | None:
    """The placeholder on a line of which a word is a part: a shell within a shell takes `<path` for a redirection."""
    return _placeholders_on(line).get(word)


@lru_cache(maxsize=64)
def _placeholders_on(line: str) -> Mapping[str, str]:
    """The placeholders of a line, the first for each word in one."""
    found = [(word, text) for text in _PLACEHOLDER.findall(line) for word in re.findall(r"\w+", text)]
    return dict(reversed(found))


def _opens(text: str) -> bool:
    """Whether a word begins a placeholder that it doesn't end."""
    return ">" not in text.rpartition("<")[2] and "<" in text


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and " " not in word


def _is_known(word: str, table: OptionTable) -> bool:
    """Whether a word is an option of the table's, with a value of any form behind `=`."""
    return word.startswith("-") and table.get(word.partition("=")[0]) is not None


def _values(
    words: Sequence[PlacedWord], index: int, option: MegatronOption, table: OptionTable
) -> Iterator[PlacedWord]:
    """The values that follow an option, as many as it accepts."""
    most = {"?": 1, None: 0 if option.kind == "flag" else 1}.get(option.nargs, len(words))
    for word in words[index : index + most]:
        known = word.value if word.value is not None else word.begins or (word.conditional or "").split(" ")[0]
        if _is_option(known) or _is_known(known, table):
            return
        yield word


def _given(
    option: MegatronOption, written: str, values: Sequence[str | None], where: Location, *, explicit: bool = False
) -> GivenOption:
    value, problem = _typed(option, values, explicit=explicit)
    text = " ".join("..." if value is None else value for value in values)
    return GivenOption(
        name=option.name,
        written=written,
        value=value,
        text=text,
        problem=problem,
        where=where,
        is_choice=bool(option.choices) and bool(values),
    )


def _typed(option: MegatronOption, values: Sequence[str | None], *, explicit: bool) -> tuple[object, str | None]:
    if option.kind == "flag":
        return True, "accepts no value" if explicit and option.nargs is None else None
    if not values and option.nargs in (None, "+"):
        return None, "has no value"
    results = [(None, None) if value is None else _convert(option, value) for value in values]
    problem = next((problem for _, problem in results if problem), None)
    if option.nargs in ("+", "*"):
        typed = tuple(value for value, _ in results)
        return (None if problem or None in typed else typed), problem
    return (results[0][0] if results else None), problem


def _convert(option: MegatronOption, text: str) -> tuple[object, str | None]:
    """One value of an option, and why it is none."""
    value: object = text
    if option.kind == "int":
        if not _INTEGER.fullmatch(text) or len(text) > _MOST_DIGITS:
            return None, "requires an integer"
        value = int(text)
    elif option.kind == "float":
        try:
            value = float(text)
        except ValueError:
            return None, "requires a number"
    if option.choices and value not in option.choices:
        return (
            None,
            f"accepts {' or '.join(filter(None, (', '.join(map(str, option.choices[:-1])), str(option.choices[-1]))))}",
        )
    return value, None
