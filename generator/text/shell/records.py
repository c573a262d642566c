"""The parts of a bash script, each with its offset, as far as they are known without running it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import field
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Location
from ...patterns import lazy_pattern
from ...places import Lines
from ..text import Text
from .blocks import Fault

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
#: The option before the text that a shell reads.
TEXT_FOLLOWS: Final = lazy_pattern(r"-[a-z]*c[a-z]*")


class Word(NamedTuple):
    """One word of a command or an array, as the program would get it."""

    raw: str  #: as written
    value: str | None  #: after quotes and expansion; None where a part can't be known
    offset: int  #: of `raw`, in characters from the start of the document
    parts: tuple[str | None, ...] = ()  #: the known and the unknown parts (None) in order
    variables: tuple[str, ...] = ()  #: the variables that the shell expands in it
    #: Where branches differ: the texts of words of which some may be in its place, None for one
    #: that can't be known. Empty where that can be anything.
    perhaps: tuple[str | None, ...] = ()
    #: Where branches give one word different texts: all of them. Empty where one can't be known.
    either: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """The text that it is known to begin with."""
        return (self.parts[0] or "") if self.parts else ""

    @property
    def path(self) -> str | None:
        """The path that it is; of `$HERE/ds.json` the end, which is known."""
        if self.value is not None:
            return self.value
        tail = ((self.parts[-1] if self.parts else None) or "").partition("/")[2]
        name = self.raw.strip("\"'").rpartition("/")[2].strip("\"'")
        if not name or set(name) & set("$`*?{}\"'"):
            return tail or None
        return tail if tail.endswith(name) else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`NAME=value`, exported or not, on its own or before a command."""

    name: str
    value: str | None  #: after expansion; of `NAME+=` the whole value; None where it can't be known
    raw: str  #: what is behind the equals sign, as written
    exported: bool
    offset: int  #: of the name
    value_offset: int  #: of `raw`
    command_index: int  #: the index of the command that follows it or that it belongs to
    words: tuple[Word, ...] | None = None  #: of an array, all its words
    #: the known and the unknown parts of the value, as in `Word`
    parts: tuple[str | None, ...] = ()
    inside: int | None = None  #: the index of the command whose `bash -c` it is in
    guarded: bool = False  #: in a branch, loop or function, or behind `&&` or `||`

    @property
    def only_exports(self) -> bool:
        """Whether it is `export NAME` alone: what sets the variable is before it, if anything."""
        return self.value_offset == self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A simple command without its redirections."""

    words: tuple[Word, ...]
    environment: tuple[Assignment, ...]  #: `A=b` before the command
    offset: int
    index: int  #: its place among the script's commands
    shell: str | None = None  #: the text of the `bash -c` that it is in, None in the script itself
    inside: int | None = None  #: the index of the command whose `bash -c` it is in
    guarded: bool = False  #: in a branch, loop or function: it may not run, or run often

    @property
    def run(self) -> tuple[Word, ...]:
        """The words from the program, builtin or function on."""
        behind = len(self.words) > 1 and self.words[0].value in ("builtin", "command", "exec")
        return self.words[1:] if behind else self.words

    @property
    def single_quoted(self) -> bool:
        """Return whether it is in a `bash -c '...'`, in which the outer shell expands nothing."""
        return (self.shell or "").startswith("'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """A `#SBATCH` line."""

    words: tuple[Word, ...]
    offset: int
    ignored: bool  #: a command is before it, so sbatch doesn't read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Heredoc:
    """A file that the script writes from a here-document."""

    content: str  #: variables are expanded where known, and stay as written where not
    offset: int  #: where the content starts
    complete: bool  #: whether every expansion is known
    #: nothing was expanded: offsets in the content and in the script differ by `offset`
    literal: bool
    #: the word that names the file; None: the text is another program's input
    target: Word | None = None

    @property
    def span(self) -> range:
        """Its offsets in the script; the end is exact where nothing was expanded."""
        return range(self.offset, self.offset + len(self.content))


#: The last assignments of a variable: the index of the next command, and the value, None where it
#: can't be known.
History = dict[str, list[tuple[int, str | None]]]


@dataclass(slots=True, kw_only=True, eq=False)
class ShellScript:
    """A script's commands, assignments, directives and here-documents, in order.

    Those of its nested shells are among them. It is equal to itself alone, so that answers about it
    can be kept.
    """

    text: Text
    lines: Lines = field(repr=False)
    #: of an offset, in another document
    place: Callable[[int], Location] | None = field(default=None, repr=False)
    directives: list[Directive] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)
    #: the words that name files which commands write
    written: list[Word] = field(default_factory=list)
    #: those of files to which commands add, or which they change
    edited: list[Word] = field(default_factory=list)
    history: History = field(default_factory=dict, repr=False)
    #: the names of the variables that its nested shells set, scripts that it calls among them
    set_inside: set[str] = field(default_factory=set, repr=False)
    #: texts of the files that it calls and sources, each with the offset at which its words begin
    followed: list[tuple[int, Text]] = field(default_factory=list, repr=False)
    #: the lines of those in which something was located, by that offset
    _lines: dict[int, Lines] = field(default_factory=dict, repr=False)
    #: the paths of those that it calls, each in a shell of its own
    called: list[str] = field(default_factory=list)
    #: where its loops, conditions and other blocks don't fit together
    fault: Fault | None = None
    #: the offset of a quote, bracket or here-document that nothing closes
    unterminated: int | None = None

    @property
    def texts(self) -> tuple[Text, ...]:
        """Its own text, and those of the files that it calls and sources."""
        return (self.text, *(text for _, text in self.followed))

    def heredoc_at(self, offset: int) -> Heredoc | None:
        """The here-document in which an offset lies."""
        return next((each for each in self.heredocs if offset in each.span), None)

    def mentions(self, *parts: str) -> bool:
        """Whether one of these parts is written in one of its texts."""
        return any(part in text.content for text in self.texts for part in parts)

    @property
    def shebang(self) -> str | None:
        return self.text.lines[0] if self.text.content.startswith("#!") else None

    def locate(
        self, thing: Word | Assignment | Command | Directive | Heredoc | int, pointer: str = ""
    ) -> Location:
        """The place of a part of the script, or of an offset."""
        offset = thing if isinstance(thing, int) else thing.offset
        text, base = self.text_at(offset)
        if text is not self.text:
            if base not in self._lines:
                self._lines[base] = Lines(text)
            return self._lines[base].locate(offset - base, pointer)
        return self.lines.locate(offset, pointer) if self.place is None else self.place(offset)

    def text_at(self, offset: int) -> tuple[Text, int]:
        """The text that an offset is in, its own or one that it calls, and where that begins."""
        if offset > len(self.text.content):
            for base, text in reversed(self.followed):
                if base <= offset:
                    return text, base
        return self.text, 0

    def text_between(self, start: int, end: int) -> str:
        """The text between two offsets of one file: of the script, or of one that it calls."""
        if start <= len(self.text.content):
            return self.text.content[start:end]
        found = ((base, text) for base, text in reversed(self.followed) if base <= start)
        base, text = next(found, (start, None))
        return "" if text is None else text.content[start - base : end - base]

    def value_of(self, name: str, before: int | None = None) -> str | None:
        """The value of a variable where the command of index `before` begins.

        With None, it is that at the end of the script.
        """
        changes = self.history.get(name, [])
        if before is None:
            return changes[-1][1] if changes else None
        index = bisect_right(changes, before, key=lambda change: change[0])
        return changes[index - 1][1] if index else None
