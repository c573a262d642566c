"""Faults of dsgen itself: a rule or a reader that raises is noted, and the rest goes on.

`collected` collects the faults of a command. Where nobody collects, as in a test or a notebook, the
exception goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePath
from typing import Final

from .dataclass import dataclass

#: The ids of `check/codes.py` by which faults are reported.
FAULTS: Final = frozenset({"DSG001", "DSG002"})

_MOST_NAMED = 3  # parts of dsgen in a message
_MOST_SAID = 200  # characters of an exception in a message
_MOST_LOOKED_AT = 200  # values in which the path of a subject is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One exception, and the parts of dsgen that raised it on one file."""

    parts: tuple[str, ...]  #: such as `rule SLM004` and `the reader of launch scripts`
    is_rule: bool  #: whether the parts are rules
    path: str  #: of the file; empty where it isn't known
    error: str  #: such as `IndexError: list index out of range, at job/wording.py:101`
    trace: str  #: the traceback

    @property
    def message(self) -> str:
        """Say what failed, and how."""
        named, more = ", ".join(self.parts[:_MOST_NAMED]), len(self.parts) - _MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        return f"this is a fault of dsgen: {named}{rest} failed ({self.error})"


class Faults:
    """The faults so far: one for each cause and file, however many rules fail by it."""

    def __init__(self) -> None:
        self._by_cause: dict[tuple[bool, str, str], Fault] = {}

    def add(self, error: Exception, part: str, path: str, *, is_rule: bool) -> None:
        """Add an exception that `part` has raised on the file at `path`."""
        import traceback  # here, to save start-up time

        trace = "".join(traceback.format_exception(error))
        text = _text(error)
        self.merge(Fault(parts=(part,), is_rule=is_rule, path=path, error=text, trace=trace))

    def merge(self, fault: Fault) -> None:
        """Add a fault to those of the same cause on its file."""
        cause = (fault.is_rule, fault.path, fault.error)
        known = self._by_cause.setdefault(cause, fault)
        parts = tuple(dict.fromkeys((*known.parts, *fault.parts)))
        self._by_cause[cause] = replace(known, parts=parts)

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._by_cause.values()))

    def __bool__(self) -> bool:
        return bool(self._by_cause)


_faults: ContextVar[Faults | None] = ContextVar("faults", default=None)


@contextmanager
def collected() -> Iterator[Faults]:
    """Collect the faults of what runs in here."""
    faults = Faults()
    token = _faults.set(faults)
    try:
        yield faults
    finally:
        _faults.reset(token)


def note(error: Exception, part: str, path: str = "", *, is_rule: bool = True) -> None:
    """Note a fault; called where the exception is handled.

    Raises it again where nobody collects faults, and where memory has run out: what comes next
    would fail for the same reason, and dsgen is not at fault.
    """
    faults = _faults.get()
    if faults is None or isinstance(error, MemoryError):
        raise error
    faults.add(error, part, path, is_rule=is_rule)


def note_again(fault: Fault) -> None:
    """Note a fault that another process has collected."""
    faults = _faults.get()
    if faults is None:
        raise RuntimeError(fault.trace)
    faults.merge(fault)


@contextmanager
def guarded(
    part: str, judged: object = "", *, meant: type[Exception] | tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Note an exception in the block as a fault of `part`; go on after it.

    `judged` is the path of the file that the block works on, or what has such a path in it.
    Exceptions that are `meant` tell of the input, and go on.
    """
    try:
        yield
    except meant:
        raise
    except Exception as error:
        path = judged if isinstance(judged, str) else path_in(judged)
        note(error, part, path, is_rule=False)


def path_in(*values: object) -> str:
    """The path of the first document or place among these values and their fields; else empty."""
    waiting = list(values)
    for count, value in enumerate(waiting):  # which grows meanwhile
        path = _path_of(value)
        if path:
            return path
        if count < _MOST_LOOKED_AT:
            waiting += _parts(value)
    return ""


def _path_of(value: object) -> str:
    try:
        path = getattr(value, "path", "")
    except Exception:  # what fails may be the very thing that is asked
        return ""
    return path if isinstance(path, str) else ""


def _parts(value: object) -> list[object]:
    """The fields of a record, or the values of a collection."""
    if isinstance(value, (tuple, list)):
        return list(value[:_MOST_LOOKED_AT])
    if isinstance(value, dict):
        return list(value.values())[:_MOST_LOOKED_AT]
    if is_dataclass(value):
        return [getattr(value, field.name, None) for field in fields(value)]
    return []


def _text(error: Exception) -> str:
    """The exception with its place in the package."""
    import traceback  # here, to save start-up time

    frames = traceback.extract_tb(error.__traceback__)
    package = PurePath(__file__).parent
    inside = [frame for frame in frames if package in PurePath(frame.filename).parents]
    kind, message = type(error).__name__, " ".join(str(error).split())[:_MOST_SAID]
    text = f"{kind}: {message}" if message else kind
    if not inside:
        return text
    place = PurePath(inside[-1].filename).relative_to(package).as_posix()
    return f"{text}, at {place}:{inside[-1].lineno}"
