"""Shell text that starts a job: a script, or a command within YAML, with its places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from posixpath import basename
from typing import ClassVar, Final

from ..dataclass import dataclass
from ..findings import Location
from ..patterns import lazy_pattern
from ..places import Lines
from ..text.document import Kind, YamlDocument
from ..text.lookup import end_alike
from ..text.options import Options
from ..text.shell.records import ShellScript, Word
from ..text.source import Source
from ..text.text import Text
from .claims import Claim
from .launches import Launch

_IN_VARIABLE: Final = lazy_pattern(r"\$\{?(\w+)\}?/(.*)")
_SEPARATOR: Final = lazy_pattern(r"^---(?:[ \t][^\n]*)?$", re.MULTILINE)
#: Text that a program makes YAML of, such as Helm's: a value or a line that is one of its
#: expressions. In a comment, a script's in a scalar too, it makes none.
_TEMPLATE: Final = lazy_pattern(r"^[ \t]*(?:(?:[\w.-]+:|-)[ \t]*)?\{\{|\{%", re.MULTILINE)
_COMMENT: Final = lazy_pattern(r"(?<!\S)#[^\n]*")
NAME: Final = lazy_pattern(r"[A-Za-z_]\w*", re.ASCII)  #: of a variable
UNKNOWN: Final = '"$(:)"'  #: the value of a variable that can't be known
_PROPERTIES: Final = lazy_pattern(r"(?:[&!]\S*[ \t]+)*")  # an anchor and a tag before the scalar
_BLOCK: Final = lazy_pattern(r"[|>][^\n\r]*(?:\r\n|[\n\r])")
#: A name that says what a run is for: `debug_gpu.sh`, `--job-name=debug-nccl`.
_FOR_DEBUGGING: Final = lazy_pattern(r"(?<![a-z])debug(?:ging)?(?![a-z])", re.IGNORECASE)
_SKIPPED: Final = frozenset("\\'\"")  # what quoting adds to a quoted scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchScript:
    """A shell script that starts a job: its directives, variables and command lines."""

    document_kind: ClassVar[Kind] = "launch script"

    shell: ShellScript
    launches: tuple[Launch, ...]
    directives: Options  #: of its block of directives (`#SBATCH`), as far as they are read

    @property
    def path(self) -> str:
        return self.shell.text.path

    @property
    def is_for_debugging(self) -> bool:
        """Whether the file's name, or its job's, says that it is for debugging."""
        return are_for_debugging(basename(self.path), self.directives.text("--job-name"))

    @property
    def beside_launches(self) -> Iterator[Word]:
        """Return the words of the commands that start no training program.

        These may write or change the files that they name.
        """
        started = {call.word.offset for launch in self.launches for call in launch.calls}
        started |= {launch.program.offset for launch in self.launches if launch.program is not None}
        for command in self.shell.commands:
            if started.isdisjoint(word.offset for word in command.words):
                yield from command.words[1:]

    def makes(self, path: str, raw: str = "") -> bool:
        """Return whether a command writes or changes a file, or gets a text that names it.

        `python - <<EOF` gets such a text. `$DIR/copy/a.json` is another file than `raw`, where that
        is `$DIR/a.json`.
        """
        for word in (*self.shell.written, *self.shell.edited):
            if word.path and end_alike(word.path, path) and not _are_apart(word.raw, raw):
                return True
        piped = (text.content for text in self.shell.heredocs if text.target is None)
        return any(basename(path) in content for content in piped)


def are_for_debugging(*names: str | None) -> bool:
    """Return whether one of the names of a script or a job says that it is for debugging."""
    return any(name and _FOR_DEBUGGING.search(name) for name in names)


def _are_apart(raw: str, other: str) -> bool:
    """Return whether two words, as written, are different paths from the same variable."""
    first = _IN_VARIABLE.match(raw.replace('"', ""))
    second = _IN_VARIABLE.match(other.replace('"', ""))
    if first is None or second is None:
        return False
    return first[1] == second[1] and first[2] != second[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDocument(YamlDocument):
    """YAML with a command, read as a shell script.

    A service or a controller starts the command on its nodes.
    """

    document_kind: ClassVar[Kind]
    #: Whether the paths of the command are those of an image or a volume, so that names alone tell
    #: files.
    in_image: ClassVar[bool] = False
    is_replicated: ClassVar[bool] = False  #: whether a controller starts the command on each node
    #: The variable that has a node's own number, and an expression for the address of the first
    #: one; None where what starts the command says neither.
    node_number: ClassVar[str | None] = None
    first_node: ClassVar[str | None] = None

    script: LaunchScript | None

    @property
    def other_text(self) -> Text | None:
        """The text of another file that has the command; None where it is in the file itself."""
        return None

    @property
    def has_slots(self) -> bool:
        """Whether it counts processes in slots, which a rule of its own compares."""
        return False

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.script.launches if self.script is not None else ()

    def runs(self, *programs: str) -> bool:
        """Return whether the command calls one of these programs."""
        return any(call.program in programs for launch in self.launches for call in launch.calls)

    def claims(self) -> Iterator[Claim]:
        """The numbers of GPUs and nodes that the job has."""
        yield from ()

    @property
    def start_folder(self) -> str | None:
        """Return the folder in which the command starts, from that of the file.

        Returns None where nothing says it.
        """
        return None

    def input_file(self, name: str) -> tuple[str, Location] | None:
        """The local file that `${{inputs.NAME}}` stands for in the command, and its place."""
        return None


#: text of a script, and the place of each of its characters
Piece = tuple[str, Callable[[int], Location]]


def is_template(content: str) -> bool:
    """Return whether YAML is made of this text, which is none yet."""
    return _TEMPLATE.search(_COMMENT.sub("", content)) is not None


def documents_of(text: Text) -> Iterator[Text]:
    """The documents of a YAML file, each behind as many empty lines as are before it."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text.content))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text.content)), len(text.content)]
    if len(starts) == 1:
        yield text
        return
    for start, end in zip(starts, ends, strict=True):
        content = "\n" * text.content.count("\n", 0, start) + text.content[start:end]
        yield replace(text, content=content, lines=content.split("\n"))


def places(source: Source, text: Text, at: str, command: str) -> Callable[[int], Location]:
    """The place in the file of each character of the text at a pointer.

    It is the place of the text's key where characters can't be matched.
    """
    lines, where = Lines(text), source.locate(at)
    key = replace(source.locate_key(at), pointer=where.pointer)
    begin = 0
    if where.line and where.line <= len(lines.starts):
        begin = lines.starts[where.line - 1] + (where.column or 1) - 1
    offsets = _aligned(command, text.content, begin)
    if offsets is None:
        return constant(key)
    return partial(_place_in_file, lines, offsets, where.pointer)


# Places are functions of modules with some arguments: unlike those within functions, they can be
# sent to another process.
def _place_in_file(lines: Lines, offsets: Sequence[int], pointer: str, offset: int) -> Location:
    return lines.locate(offsets[min(max(offset, 0), len(offsets) - 1)], pointer)


def _aligned(value: str, content: str, begin: int) -> list[int] | None:
    """The offset in the text of each character of a scalar's value; the scalar begins at `begin`.

    Folding changes white space and quoting adds quotes and backslashes; every other character is
    there once, in order. None where that doesn't hold, as for an alias or an escape such as
    `\\x41`.
    """
    at = _PROPERTIES.match(content, begin).end()  # type: ignore[union-attr]
    block = _BLOCK.match(content, at)
    is_quoted = block is None and content[at : at + 1] in ("'", '"')
    if block is not None:
        at = block.end()
    elif is_quoted:
        at += 1
    added = _SKIPPED if is_quoted else frozenset[str]()
    offsets: list[int] = []
    for char in value:
        if char.isspace():
            offsets.append(at)
            continue
        at = _offset_of(char, content, at, added)
        if at < 0:
            return None
        offsets.append(at)
        at += 1
    return offsets or None


def _offset_of(char: str, content: str, at: int, added: frozenset[str]) -> int:
    """Where a character comes next, behind white space and what is `added`; -1: other text does."""
    for offset in range(at, len(content)):
        current = content[offset]
        if current == char:
            return offset
        if not current.isspace() and current not in added:
            return -1
    return -1


def constant(where: Location) -> Callable[[int], Location]:
    """One place for every character of a piece."""
    return partial(_the_same, where)


def _the_same(where: Location, _: int) -> Location:
    return where


def exported(name: str, value: str, where: Location) -> Piece:
    """A variable that is set for the command."""
    return f"export {name}={value}\n", constant(where)
