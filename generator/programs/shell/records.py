"""The parts of a shell script, each with its offset."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ...dataclass import dataclass

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
TEXT_FOLLOWS: Final = re.compile(r"-[a-z]*c[a-z]*")  # the option before the text that a shell reads


class Word(NamedTuple):
    """One word of a command or an array, as the program would get it."""

    raw: str  #: as written
    value: str | None  #: after quotes and expansion; None where a part can't be known
    offset: int  #: of `raw`, in characters from the start of the document
    parts: tuple[str | None, ...] = ()  #: the known and the unknown parts (None) in order
    variables: tuple[str, ...] = ()  #: the variables that the shell expands in it

    @property
    def prefix(self) -> str:
        """The text that it is known to begin with."""
        return (self.parts[0] or "") if self.parts else ""

    @property
    def path(self) -> str | None:
        """The path that it is; its end where the folders before it are a variable: `$HERE/ds.json`."""
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
    parts: tuple[str | None, ...] = ()  #: the known and the unknown parts of the value, as in `Word`
    inside: int | None = None  #: the index of the command whose `bash -c` it is in


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A simple command without its redirections."""

    words: tuple[Word, ...]
    environment: tuple[Assignment, ...]  #: `A=b` before the command
    offset: int
    index: int  #: its place among the script's commands
    shell: str | None = None  #: the text of the `bash -c` that it is in, None in the script itself
    single_quoted: bool = False  #: whether that text is in single quotes, so that the outer shell expands nothing in it
    inside: int | None = None  #: the index of the command whose `bash -c` it is in
    guarded: bool = False  #: in a branch, loop or function: it may not run, or run often


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
    literal: bool  #: nothing was expanded: offsets in the content and in the script differ by `offset`
    target: Word | None = None  #: the word that names the file; None: the text is another program's input
