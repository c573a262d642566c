"""Options of a command line, read from its words as getopt and argparse do.

A table has the options of a program. An entry of a table is an option's names with `|` between
them, and a mark: `=` if a value follows, `==` if two do, `?` if a value may be attached; a flag has
none. dsgen calls the option by the first name. `X:` before it is the option's letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from ..dataclass import dataclass
from ..findings import NOTE, Edit, Location, Severity, Violation
from ..numerals import python_int
from .shell.records import ShellScript, Word

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An option that a program has."""

    name: str  #: as we call it, with its dashes
    values: int  #: how many words follow it
    #: a value may be attached (`--name=value`, `-Xvalue`), never the next word
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A program's options by every spelling."""

    options: Mapping[str, Known]
    abbreviates: bool  #: whether an unambiguous beginning of a long name will do
    single_dash: bool  #: `-hostfile` is a long name, not letters
    argparse: bool  #: no option takes the next option for its value; getopt's do

    def find(self, written: str) -> Known | None:
        """The option of a spelling, which may be abbreviated.

        None where no option has it, or more than one.
        """
        exact = self.options.get(written)
        may_be_abbreviated = self.abbreviates and written.startswith("--") and len(written) > 2
        if exact is not None or not may_be_abbreviated:
            return exact
        candidates = {
            option.name: option for name, option in self.options.items() if name.startswith(written)
        }
        return next(iter(candidates.values())) if len(candidates) == 1 else None


def _dashed(name: str) -> str:
    """An option's name with its dashes, where the table leaves them out."""
    if len(name) > 1 and name.startswith("-"):
        return name
    return f"-{name}" if len(name) == 1 else f"--{name}"


def table_of(tables: Mapping[str, Any], entry: Mapping[str, Any]) -> Table:
    """A table from its entry among `tables`, some of which it may include.

    With `dashes`, names with underscores are accepted with dashes as well.
    """
    options: dict[str, Known] = {}
    included = [text for name in entry.get("includes", ()) for text in tables[name]["options"]]
    for text in (*included, *entry["options"]):
        body = text.rstrip("=?")
        mark = text[len(body) :]
        letter, colon, rest = body.rpartition(":")
        names = [_dashed(name) for name in rest.split("|")]
        option = Known(name=names[0], values=mark.count("="), optional=mark == "?")
        spellings = [*names, f"-{letter}"] if colon else names
        if entry.get("dashes"):
            spellings += [name.replace("_", "-") for name in spellings]
        options.update(dict.fromkeys(spellings, option))
    traits = {"abbreviates": True, "single_dash": False, "argparse": False}
    return Table(
        options=options, **{name: entry.get(name, usual) for name, usual in traits.items()}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option as written, by the name its program calls it."""

    name: str  #: canonical, such as `--nodes` for `-N`
    written: Word
    values: tuple[Word, ...] = ()
    known: bool = True  #: whether the program has it

    @property
    def text(self) -> str | None:
        """The value as it is written; None where it has none, or it can't be known."""
        return self.values[0].value if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A program's options in order, and the words that follow them."""

    entries: tuple[Option, ...] = ()
    rest: tuple[Word, ...] = ()
    #: words among them that can't be known: there may be more options in these
    opaque: tuple[Word, ...] = ()

    def get(self, name: str) -> Option | None:
        """The last option of a canonical name."""
        for entry in reversed(self.entries):
            if entry.name == name:
                return entry
        return None

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def text(self, name: str) -> str | None:
        """The value of an option; None where it isn't there, has none or can't be known."""
        entry = self.get(name)
        return entry.text if entry else None

    def integer(self, name: str) -> int | None:
        """The value of an option as an integer; None where it is none."""
        text = self.text(name)
        return python_int(text) if text is not None else None

    @property
    def unknown(self) -> tuple[Option, ...]:
        return tuple(entry for entry in self.entries if not entry.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument(Generic[T]):
    """An option that is given, with its value as its program reads it."""

    value: T
    name: str  #: as messages write it, such as `--nodes`
    command: str  #: that it is given to, as messages write it, such as `#SBATCH` or `torchrun`
    option: Option
    shell: ShellScript = field(repr=False)

    def __str__(self) -> str:
        """The option as one writes it: `#SBATCH --nodes=4`."""
        words = f"{self.command} {self.name}"
        return words if self.text is None else f"{words}={self.text}"

    @property
    def text(self) -> str | None:
        """The option's, as it is written."""
        return self.option.text

    @property
    def where(self) -> Location:
        return self.shell.locate(self.option.written)

    @property
    def where_value(self) -> Location:
        """The place of the value, else of the option."""
        word = self.option.values[0] if self.option.values else self.option.written
        return self.shell.locate(word)

    def bad_value(
        self,
        message: str,
        hint: str | None,
        severity: Severity | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> Violation:
        """A violation at the value.

        It is a note where the value is an empty variable, which is left to be set.
        """
        unset = self.text == "" and "$" in self.option.values[0].raw
        return Violation(
            self.where_value, message, hint, severity=NOTE if unset else severity, edits=edits
        )

    def bad_option(self, message: str, hint: str, severity: Severity | None = None) -> Violation:
        return Violation(self.where, message, hint, severity=severity)


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command's options, with their places."""

    shell: ShellScript = field(repr=False)
    options: Options
    program: str  #: such as sbatch, srun, torchrun

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return self.program

    @property
    def opaque(self) -> bool:
        """Return whether it may have options that can't be known."""
        return bool(self.options.opaque)

    def name_of(self, option: Option) -> str:
        return option.written.raw.partition("=")[0]

    def has(self, *names: str) -> bool:
        return any(self.options.has(name) for name in names)

    def view(self, option: Option, value: V) -> Argument[V]:
        """One of the options, with its value as the program reads it."""
        return Argument(
            value=value,
            name=self.name_of(option),
            command=self.title,
            option=option,
            shell=self.shell,
        )

    def argument(self, *names: str) -> Argument[str | None] | None:
        """The first of these options that is given.

        Where it is given more than once, its last time counts.
        """
        for name in names:
            option = self.options.get(name)
            if option is not None:
                return self.view(option, option.text)
        return None

    def read(self, name: str, reader: Callable[[str], V | None]) -> Argument[V] | None:
        """An option with what `reader` makes of its text.

        None where it isn't given, or its text isn't known or can't be read.
        """
        option = self.options.get(name)
        if option is None or option.text is None:
            return None
        value = reader(option.text)
        return None if value is None else self.view(option, value)

    def text(self, name: str) -> Argument[str] | None:
        """An option whose value is known."""
        return self.read(name, str)

    def integer(self, name: str) -> Argument[int] | None:
        """An option whose value is known, and an integer."""
        return self.read(name, python_int)


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
    known_left, rest = word.prefix[after:], word.parts[1:]
    # Where nothing is left of the known part, the unknown part behind it is the first.
    is_first_unknown = not known_left and rest[:1] == (None,)
    parts = rest if is_first_unknown else (known_left or None, *rest)
    return word._replace(raw=raw, offset=offset, parts=parts)


def basename(word: Word) -> str:
    """A path's last part, as far as it is known."""
    return (word.parts[-1] or "").rpartition("/")[2] if word.parts else ""


def read_options_by(
    table: Table,
    words: Sequence[Word],
    is_program: Callable[[Word], bool],
    *,
    everywhere: bool = False,
) -> Options:
    """Read the options up to the first word that is none.

    With `everywhere`, those after other words count as well. `is_program` tells whether a word is
    more likely a program than the value of an unknown option.
    """
    return _Reader(table, words, is_program).read(everywhere)


class _Reader:
    """Words while options are read from them."""

    def __init__(
        self, table: Table, words: Sequence[Word], is_program: Callable[[Word], bool]
    ) -> None:
        self._table, self._words, self._at = table, words, 0
        self._is_program = is_program
        self._entries: list[Option] = []

    def read(self, everywhere: bool) -> Options:
        words, opaque, rest = self._words, list[Word](), list[Word]()
        last_program: int | None = None
        while self._at < len(words):
            word = words[self._at]
            self._at += 1
            if word.value == "--":
                break
            if word.prefix.startswith("-") and len(word.prefix) > 1:
                if word.value is None and "=" not in word.prefix and self._is_long_name(word):
                    opaque.append(word)  # `--$NAME` can be any option
                else:
                    self._option(word)
                continue
            is_script = (word.parts[-1] or "").endswith((".py", ".sh")) if word.parts else False
            if word.value is None and not word.prefix and not is_script and not self._is_python():
                # A word that isn't known is likely to stand for options where a known program comes
                # later.
                if last_program is None:
                    backwards = range(len(words) - 1, -1, -1)
                    last_program = next(
                        (index for index in backwards if self._is_program(words[index])), -1
                    )
                if last_program >= self._at or word.perhaps:  # options, or nothing
                    opaque.append(word)
                    continue
            if not everywhere:
                self._at -= 1
                break
            rest.append(word)
        return Options(
            entries=tuple(self._entries), rest=(*rest, *words[self._at :]), opaque=tuple(opaque)
        )

    def _is_python(self) -> bool:
        """Return whether the word before this place is an interpreter: `$PYTHON -m torch.run`."""
        option, module = [*self._words[self._at : self._at + 2], None, None][:2]
        is_module = module is not None and "." in (module.value or "").strip(".")
        return is_module and option is not None and option.value == "-m"

    def _is_long_name(self, word: Word) -> bool:
        """Return whether a word is an option's name, not single letters after one dash."""
        name = word.prefix.partition("=")[0]
        return (
            name.startswith("--") or self._table.single_dash or self._table.find(name) is not None
        )

    def _option(self, word: Word) -> None:
        """Read the option that a word begins, with its values."""
        name, equals, _ = word.prefix.partition("=")
        # `-nodes` in place of `--nodes` is one unknown name, not five letters.
        is_misdashed = (
            len(name) > 3 and not self._table.single_dash and f"-{name}" in self._table.options
        )
        if self._is_long_name(word) or is_misdashed:
            option = self._table.find(name)
            if option is None and self._table.single_dash and not name.startswith("--"):
                option = self._table.find("-" + name)
            if equals:
                self._add(option, name, word, (value_part(word, len(name) + 1),))
            else:
                self._add(option, name, word, self._following(self._taken_by(option)))
            return

        # `-vN2`: letters, the last of which may have its value attached.
        for index in range(1, len(word.prefix)):
            letter = f"-{word.prefix[index]}"
            option = self._table.options.get(letter)
            if option is None:
                self._add(None, word.prefix if index == 1 else letter, word, ())
                return
            takes_value = option.values or option.optional
            has_more = len(word.prefix) > index + 1 or word.value is None
            if takes_value and has_more:
                self._add(option, letter, word, (value_part(word, index + 1),))
                return
            self._add(option, letter, word, self._following(option.values))

    def _taken_by(self, option: Known | None) -> int:
        """How many of the words that follow are an option's values."""
        following = self._words[self._at : self._at + 2]
        after = following[0].prefix.partition("=")[0] if following else ""
        if option is None:
            # An unknown option takes one value, if a word follows that is neither an option, nor a
            # program, nor the last.
            is_value = len(following) > 1 and after[:1] != "-"
            return int(is_value and not self._is_program(following[0]))

        # Where the next option or the program follows, the value is missing.
        is_option = re.match("--?[a-z]", after) is not None and self._table.find(after) is not None
        lacks_value = self._table.argparse and (is_option or after.endswith(".py"))
        return 0 if lacks_value else option.values

    def _following(self, count: int) -> tuple[Word, ...]:
        self._at += count
        return tuple(self._words[self._at - count : self._at])

    def _add(self, option: Known | None, name: str, word: Word, values: tuple[Word, ...]) -> None:
        name = option.name if option else name
        self._entries.append(
            Option(name=name, written=word, values=values, known=option is not None)
        )
