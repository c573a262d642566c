"""Reads the options of the programs that start training from their words, as getopt and argparse do.

Each table of launcher_options.json has its source. An option is its names, the first of which is the one we call
it by, and a mark: `=` a value follows, `?` a value may be attached, `==` two values follow, none: a flag. `X:` before
a long name is its letter. A table that `includes` others has their options too.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import islice, takewhile
from typing import Any, Final

from ..shell.records import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An option that a program has."""

    name: str  #: as we call it, with its dashes
    values: int  #: how many words follow it
    optional: bool = False  #: a value may be attached (`--name=value`, `-Xvalue`), never the next word


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A program's options by every spelling."""

    source: str
    options: Mapping[str, Known]
    spellings: tuple[str, ...]  #: all of them, sorted
    abbreviates: bool  #: whether an unambiguous beginning of a long name will do
    single_dash: bool  #: `-hostfile` is a long name, not letters

    def find(self, written: str) -> Known | None:
        """The option of a spelling, which may be abbreviated; None where there is none or more than one."""
        exact = self.options.get(written)
        if exact is not None or not self.abbreviates or not written.startswith("--") or len(written) < 3:
            return exact
        longer = islice(self.spellings, bisect_left(self.spellings, written), None)
        begun = takewhile(lambda name: name.startswith(written), longer)
        found = {self.options[name].name: self.options[name] for name in begun}
        return next(iter(found.values())) if len(found) == 1 else None


def _entry(text: str) -> tuple[list[str], Known]:
    body = text.rstrip("=?")
    mark = text[len(body) :]
    letter, colon, rest = body.rpartition(":")
    names = [f"-{n}" if len(n) == 1 else n if n.startswith("-") else f"--{n}" for n in rest.split("|")]
    spellings = [*names, f"-{letter}"] if colon else names
    return spellings, Known(name=names[0], values=0 if mark == "?" else len(mark), optional=mark == "?")


def _table(tables: Mapping[str, Any], entry: Mapping[str, Any]) -> Table:
    """A table from its entry. With `dashes`, names with underscores are accepted with dashes as well."""
    options: dict[str, Known] = {}
    included = [text for name in entry.get("includes", ()) for text in tables[name]["options"]]
    for text in (*included, *entry["options"]):
        spellings, known = _entry(text)
        if entry.get("dashes"):
            spellings += [name.replace("_", "-") for name in spellings]
        options.update(dict.fromkeys(spellings, known))
    return Table(
        source=entry["source"],
        options=options,
        spellings=tuple(sorted(options)),
        abbreviates=entry.get("abbreviates", True),
        single_dash=entry.get("single_dash", False),
    )


def _tables() -> dict[str, Table]:
    entries = json.loads(files(__package__).joinpath("launcher_options.json").read_text(encoding="utf-8"))
    shared = {name for entry in entries.values() for name in entry.get("includes", ())}
    return {name: _table(entries, entry) for name, entry in entries.items() if name not in shared}


TABLES: Final[Mapping[str, Table]] = _tables()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option as written, by the name its program calls it."""

    name: str  #: canonical, such as `--nodes` for `-N`
    written: Word
    values: tuple[Word, ...] = ()
    known: bool = True  #: whether the program has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A program's options in order, and the words that follow them."""

    entries: tuple[Option, ...] = ()
    rest: tuple[Word, ...] = ()
    opaque: tuple[Word, ...] = ()  #: words among them that can't be known: there may be more options in these

    def get(self, name: str) -> Option | None:
        """The last option of a canonical name."""
        return next((entry for entry in reversed(self.entries) if entry.name == name), None)

    def has(self, name: str) -> bool:
        """Whether an option is there."""
        return self.get(name) is not None

    def text(self, name: str) -> str | None:
        """The value of an option; None where it isn't there, has none or can't be known."""
        entry = self.get(name)
        return entry.values[0].value if entry and entry.values else None

    def integer(self, name: str) -> int | None:
        """The value of an option as an integer; None where it is none."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) else None

    @property
    def unknown(self) -> tuple[Option, ...]:
        """The options that the program doesn't have."""
        return tuple(entry for entry in self.entries if not entry.known)


def value_part(word: Word, after: int) -> Word:
    """The part of a word behind its first `after` known characters, such as `2` of `--nodes=2`."""
    raw, offset = word.raw, word.offset
    mark = word.prefix[:after]
    if raw.startswith(mark):
        raw, offset = raw[after:], offset + after
    elif raw[:1] in "'\"" and raw[1:].startswith(mark):
        closed = raw[-1] == raw[0] and len(raw) > after + 1
        raw, offset = raw[after + 1 : -1 if closed else None], offset + after + 1
    if word.value is not None:
        value = word.value[after:]
        return word._replace(raw=raw, offset=offset, value=value, parts=(value,))
    parts = (word.prefix[after:] or None, *word.parts[1:])
    # A cut may leave an empty part in front of an unknown one.
    return word._replace(raw=raw, offset=offset, parts=parts[1:] if parts[:2] == (None, None) else parts)


class OptionReader:
    """Reads options from words until the first that is none."""

    def __init__(self, table: Table, words: Sequence[Word], looks_like_program: Callable[[Word], bool]) -> None:
        self._table = table
        self._words = words
        self._is_program = looks_like_program
        self._entries: list[Option] = []
        self._opaque: list[Word] = []
        self._at = 0

    def read(self, everywhere: bool = False) -> Options:
        """The options; with `everywhere`, options after other words count as well."""
        rest: list[Word] = []
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if word.value == "--":
                break
            if word.prefix.startswith("-") and len(word.prefix) > 1:
                self._option(word, word.prefix)
            elif word.value is None and not word.prefix and self._may_be_options(word):
                self._opaque.append(word)
            elif everywhere:
                rest.append(word)
            else:
                self._at -= 1
                break
        return Options(entries=tuple(self._entries), rest=(*rest, *self._words[self._at :]), opaque=tuple(self._opaque))

    def _may_be_options(self, word: Word) -> bool:
        """Whether an unknown word is likely to stand for options: a known program comes later."""
        is_script = (word.parts[-1] or "").endswith((".py", ".sh"))
        return not is_script and self._last_program >= self._at

    @cached_property
    def _last_program(self) -> int:
        """Where the last known program is; -1 where there is none."""
        backwards = range(len(self._words) - 1, -1, -1)
        return next((at for at in backwards if self._is_program(self._words[at])), -1)

    def _option(self, word: Word, prefix: str) -> None:
        name, equals, _ = prefix.partition("=")
        known = self._table.find(name)
        if known is None and not name.startswith("--"):
            if not self._table.single_dash:
                self._letters(word, prefix)
                return
            known = self._table.find("-" + name)
        if word.value is None and not equals:  # `--$NAME` can be any option
            self._opaque.append(word)
        elif equals:
            self._add(known, name, word, (value_part(word, len(name) + 1),))
        else:
            self._add(known, name, word, self._following(known))

    def _following(self, known: Known | None) -> tuple[Word, ...]:
        count = known.values if known is not None else self._guess()
        values = tuple(self._words[self._at : self._at + count])
        self._at += len(values)
        return values

    def _guess(self) -> int:
        """How many values an unknown option may take: one, if a word that is no program comes and isn't last."""
        following = self._words[self._at : self._at + 2]
        none = len(following) < 2 or following[0].prefix.startswith("-") or self._is_program(following[0])
        return 0 if none else 1

    def _letters(self, word: Word, prefix: str) -> None:
        """`-vN2`: letters in one word, the last of which may have its value attached."""
        for index in range(1, len(prefix)):
            letter = f"-{prefix[index]}"
            known = self._table.options.get(letter)
            attached = len(prefix) > index + 1 or word.value is None
            if known is None:
                self._add(None, prefix if index == 1 else letter, word, ())
                return
            if (known.values or known.optional) and attached:
                self._add(known, letter, word, (value_part(word, index + 1),))
                return
            self._add(known, letter, word, self._following(known))

    def _add(self, known: Known | None, name: str, word: Word, values: tuple[Word, ...]) -> None:
        name = known.name if known else name
        self._entries.append(Option(name=name, written=word, values=values, known=known is not None))
