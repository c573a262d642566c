"""What `$NAME` and `${NAME...}` stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from .fields import Fields
from .pieces import Element, Piece, Source, Value
from .pieces import text_of_pieces as text_of
from .state import State

#: Set by the scheduler, the launcher or the service before the script runs, so a default in the script doesn't count.
SET_OUTSIDE: Final = re.compile(
    r"(SLURM|SRUN|SBATCH|PBS|LSB|OMPI|PMI|PMIX|MPI|AZUREML|AZ|COBALT|SGE|KUBERNETES)_\w*|"
    r"(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|"
    r"HOST|HOSTNAME|HOME|USER|LOGNAME|PWD|OLDPWD|PATH|LD_LIBRARY_PATH|TMPDIR|UID|EUID|RANDOM|SECONDS|BASHPID|PPID|"
    r"LINENO|BASH\w*|FUNCNAME|IFS"
)
_PARAMETER: Final = re.compile(r"(!|#(?=[\w@*]))?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.DOTALL)
_DEEPEST_DEFAULT: Final = 4  # `${A:-${B:-...}}`; what lies deeper is unknown


class Parameters:
    """Adds to `out` what variables, arrays and arguments of the shell stand for.

    `expand` gives the value of a default's text.
    """

    def __init__(
        self,
        source: Source,
        state: State,
        positional: Sequence[Element] | None,
        out: Fields,
        expand: Callable[[int, int], tuple[Piece, ...]],
        depth: int,
    ) -> None:
        self._source = source
        self._state = state
        self._positional = positional
        self._out = out
        self._expand = expand
        self._depth = depth

    def braces(self, start: int, end: int, quoted: bool) -> None:
        """`${...}`, from `start` up to `end`."""
        match = _PARAMETER.fullmatch(self._source.text, start + 2, end - 1)
        if match is None:
            self._out.unknown(start, end)
            return
        mark, name, index, operation = match.groups()
        if mark == "!" or (mark == "#" and operation):
            self._out.unknown(start, end, (name,))
        elif mark == "#":
            self._out.computed(self._length(name, index), start, end)
        elif not operation:
            self.plain(name, index, start, end, quoted)
        elif operation.startswith(":") and operation[1:].lstrip().isdigit():
            self._slice(name, index, int(operation[1:]), start, end, quoted)
        else:
            self._changed(name, index, match.start(4), start, end, quoted)

    def _length(self, name: str, index: str | None) -> str | None:
        value = self._state.get(name)
        if value is None:
            return None
        if index in ("@", "*"):
            unknown = any(text_of(element.pieces) is None for element in value.words)
            return None if unknown else str(len(value.words))
        return None if value.text is None else str(len(value.text))

    def _elements(self, name: str, index: str | None) -> Sequence[Element] | None:
        """The words that `$@` or `${NAME[@]}` stands for; None where they can't be known or it is no list."""
        if name in ("@", "*"):
            return self._positional[1:] if self._positional is not None else None
        value = self._state.get(name) if index in ("@", "*") else None
        return value.words if value else None

    def variable(self, name: str, start: int, end: int, quoted: bool) -> None:
        """`$NAME` or `${NAME}` of a variable."""
        value = self._state.get(name)
        self._out.embed(value.scalar if value else None, name, start, end, quoted)

    def plain(self, name: str, index: str | None, start: int, end: int, quoted: bool) -> None:
        """`$NAME`, `${NAME}`, `${NAME[i]}`, `$1`, `$@`."""
        if name in ("@", "*") or index in ("@", "*"):
            self._out.list(self._elements(name, index), name, start, end, "*" in (name, index), quoted)
        else:
            self._out.embed(self._scalar(name, index), name, start, end, quoted)

    def _scalar(self, name: str, index: str | None) -> Sequence[Piece] | None:
        if name.isdigit():
            number, given = int(name[:4]), self._positional or ()
            return given[number].pieces if number < len(given) else None
        value = self._state.get(name)
        if value is None or index is None:
            return value.scalar if value else None
        if value.elements is None or not index.isdigit():
            return None
        elements = value.elements[: int(index[:6]) + 1]
        known = len(elements) == int(index[:6]) + 1 and all(text_of(e.pieces) is not None for e in elements)
        return elements[-1].pieces if known else None

    def _slice(self, name: str, index: str | None, first: int, start: int, end: int, quoted: bool) -> None:
        elements = self._positional if name == "@" else None if name == "*" else self._elements(name, index)
        self._out.list(None if elements is None else elements[first:], name, start, end, index == "*", quoted)

    def _changed(self, name: str, index: str | None, operation: int, start: int, end: int, quoted: bool) -> None:
        """`${NAME:-default}` and its kin; operations on the text are unknown unless simple."""
        text = self._source.text
        colon = text.startswith(":", operation)
        mark = text[operation + colon : operation + colon + 1]
        pieces = None if index in ("@", "*") or name in ("@", "*") else self._scalar(name, index)
        value = text_of(pieces) if pieces is not None else None
        word = (operation + colon + 1, end - 1)
        if mark in ("-", "=", "+", "?") and value is not None and pieces is not None:
            filled = bool(value) or not colon
            if filled != (mark == "+"):
                self._out.embed(pieces if mark != "+" else (), name, start, end, quoted)
            else:
                self._default(name, mark, word, start, end, quoted)
        elif mark in ("-", "=") and pieces is None and index is None and self._open_to_default(name):
            self._default(name, mark, word, start, end, quoted)
        elif mark in ("%", "#") and not colon and value is not None:
            self._trimmed(name, value, text[operation : end - 1], start, end, quoted)
        else:
            self._out.unknown(start, end, (name,))

    def _open_to_default(self, name: str) -> bool:
        return name[0] not in "0123456789@*#?$!-" and not SET_OUTSIDE.fullmatch(name) and self._state.get(name) is None

    def _default(self, name: str, mark: str, word: tuple[int, int], start: int, end: int, quoted: bool) -> None:
        if self._depth >= _DEEPEST_DEFAULT or mark == "?":
            self._out.unknown(start, end, (name,))
            return
        pieces = self._expand(*word)
        if mark == "=":
            self._state.set(name, Value(pieces=pieces))
        self._out.embed(pieces, name, start, end, quoted)

    def _trimmed(self, name: str, value: str, operation: str, start: int, end: int, quoted: bool) -> None:
        """`${NAME%suffix}` and `${NAME#prefix}`, where the pattern is plain text."""
        mark, pattern = operation[0], operation.lstrip(operation[0])
        if re.search(r"[*?\[\]$`'\"\\{}~()]", pattern) or len(operation) - len(pattern) > 2:
            self._out.unknown(start, end, (name,))
            return
        text = value.removesuffix(pattern) if mark == "%" else value.removeprefix(pattern)
        self._out.embed((Piece(text, *self._source.region(start, end), (name,)),), name, start, end, quoted)
