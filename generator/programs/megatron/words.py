"""Words of a command line against the options of a parser, as argparse takes them apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...dataclass import dataclass
from ...facts.words import IN_WORDS
from ...findings import Location
from ..shell.records import Word
from .options import MegatronOption, OptionTable

_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse reads such a word as a value
_INTEGER: Final = re.compile(r"\s*[+-]?\d+(?:_\d+)*\s*", re.ASCII)
#: Variables that hold options by their names: `$EXTRA_ARGS`.
_OF_OPTIONS: Final = re.compile(r"ARG|OPT|FLAG|EXTRA|PARAM|CMD|@|\*", re.IGNORECASE)
_MOST_DIGITS: Final = 18  # no option accepts a longer number, and it is slow to convert


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
        """Return whether it is written as an option."""
        return self.word.startswith("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedWords:
    """Options that words give. `complete`: no unknown word can hold options."""

    given: tuple[GivenOption, ...]
    strays: tuple[Stray, ...]
    complete: bool
    unsure: frozenset[str] = frozenset()  #: options that are given on a condition of the script


def parse_words(words: Sequence[Word], table: OptionTable, locate: Callable[[Word], Location]) -> ParsedWords:
    """The options among `words`, in their order, and the places that `locate` gives them."""
    given, strays, unsure = list[GivenOption](), list[Stray](), set[str]()
    # what is still to be filled in, as in `<path to data>`, isn't known
    gaps = [(word, IN_WORDS.search(word.prefix)) for word in words]
    words = [
        Word(raw="", value=None, offset=word.offset, parts=(word.prefix[: gap.start()],)) if gap else word
        for word, gap in gaps
    ]
    complete, index, foreign = True, 0, False  # foreign: after an option of the script's own, whose values these may be
    while index < len(words):
        word = words[index]
        index += 1
        text = word.prefix if word.value is None else word.value
        name, sign, explicit = text.partition("=")
        option = table.get(name) if name.startswith("-") else None
        if option is not None and (sign or word.value is not None):
            values: list[str | None] = [None if word.value is None else explicit]
            if not sign:
                following = list(_values(words, index, option, table))
                index += len(following)
                values = [value.value for value in following]
                holders = (one for value in following if value.value is None for one in value.variables)
                complete = complete and not (option.nargs and any(map(_OF_OPTIONS.search, holders)))
            given.append(_given(option, name, values, locate(word), explicit=bool(sign)))
            foreign = False
        elif option is not None:  # whose name isn't written to its end
            complete, foreign = False, False
        elif word.value is None:
            perhaps = (text.partition("=")[0] for text in word.perhaps if text)
            unsure |= {named.name for one in perhaps if (named := table.get(one)) is not None}
            complete = complete and (bool(word.perhaps) or word.prefix.startswith("-"))
            foreign = True
        elif _is_option(text):
            strays.append(Stray(word=name, where=locate(word)))
            foreign = True
        elif not foreign:
            strays.append(Stray(word=text, where=locate(word), after=given[-1].written if given else None))
    return ParsedWords(given=tuple(given), strays=tuple(strays), complete=complete, unsure=frozenset(unsure))


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and " " not in word


def _values(words: Sequence[Word], index: int, option: MegatronOption, table: OptionTable) -> Iterator[Word]:
    """The values that follow an option, as many as it accepts."""
    most = {"?": 1, None: 0 if option.kind == "flag" else 1}.get(option.nargs, len(words))
    for word in words[index : index + most]:
        known = word.value if word.value is not None else word.prefix or (word.perhaps[0] or "" if word.perhaps else "")
        if _is_option(known) or (known.startswith("-") and table.get(known.partition("=")[0]) is not None):
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
