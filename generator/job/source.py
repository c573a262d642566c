"""A document's text as plain data, with the place of every key and value: YAML 1.2 (core schema) and JSON for job
specs, other dialects for other programs' files.

The parser is PyYAML's (libyaml's where it is compiled in); its events are put together here, without recursion, so that
places are kept, duplicate keys are seen, and neither deep nesting nor aliases can exhaust the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from ..dataclass import dataclass
from ..findings import NOTE, Finding, Location
from ..rule import Rule
from .codes import DUPLICATE_KEY, SYNTAX, TOO_LARGE, UNREADABLE, UNSUPPORTED_YAML
from .text import Text
from .wording import NOTHING, value_at, whole_number
from .wording import escape as escape
from .yaml_core import STRICT, Dialect, Open, short_tag, syntax_message, yaml_text

FLAGS: Final = "<flags>"  #: the path of what the command line gives
MAX_DEPTH: Final = 32
MAX_NODES: Final = 20_000  # values after aliases are expanded
MAX_SLOW: Final = 60_000  # characters that a parser in Python reads in a quarter of a second

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document as plain data: dict, list, str, int, float, bool, None. Pointers are JSON pointers (RFC 6901)."""

    path: str
    data: object
    locations: Mapping[str, Location]  #: of every value
    keys: Mapping[str, Location]  #: of every mapping key, by the pointer of its value
    findings: tuple[Finding, ...]  #: what is wrong with the text; what could be read is in `data` all the same
    texts: Mapping[str, str] = field(default_factory=dict)  #: numbers as they were written: `1e-4`, `1.10`, `007`
    complete: bool = True  #: whether the text could be read to its end
    folder: Path | None = None  #: where relative paths in the document start
    odd_keys: Mapping[str, object] = field(default_factory=dict)  #: keys that the dialect reads as no text, by pointer
    may_read: Callable[[Path, Path], bool] | None = None  #: whether a file may be read for one in a folder; None: any

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        probe = pointer
        while probe and probe not in self.locations:
            probe = probe.rpartition("/")[0]
        return replace(self.locations.get(probe, Location(path=self.path)), pointer=pointer)

    def locate_key(self, pointer: str) -> Location:
        """The place of the key whose value is at `pointer`."""
        return self.keys.get(pointer) or self.locate(pointer)

    def value(self, pointer: str, default: object = None) -> object:
        """Return the value at `pointer`; `default` where there is none."""
        return value_at(self.data, pointer, default)

    def beside(self, pointer: str, value: str) -> Path:
        """The file that the value at `pointer` names: from the document's folder, of a flag from the working one."""
        folder = None if self.locate(pointer).path == FLAGS else self.folder
        return (folder or Path()) / value

    def refused(self, rule: Rule, pointer: str, path: Path) -> tuple[Finding, ...]:
        """A note where a document that nobody named leads to a file outside of the folder that was."""
        if self.may_read is None or self.may_read(path, self.folder or Path()):
            return ()
        message = f"`{pointer[1:]}` is a file outside of the folder that is checked: it is not read"
        hint = "name the job spec itself to check it with that file"
        return (rule.at(self.locate(pointer), message, hint, NOTE),)

    def integer(self, pointer: str) -> int | None:
        """The integer at `pointer`; None where there is none, or something else."""
        return whole_number(self.value(pointer))

    def has(self, pointer: str) -> bool:
        """Return whether anything is written at `pointer`, null included."""
        return value_at(self.data, pointer, NOTHING) is not NOTHING


def parse(text: Text, dialect: Dialect = STRICT) -> Source:
    """`text` as data. Never raises for bad text: `findings` has all that is wrong."""
    reader = _Reader(text, dialect)
    if not text.content.strip():
        reader.complete = False
        reader.findings.append(UNREADABLE.at(text.locate(0, 0), "the file is empty", dialect.empty_hint))
    else:
        reader.run()
    places: dict[str, Any] = {"locations": reader.locations, "keys": reader.keys, "odd_keys": reader.odd_keys}
    read: dict[str, Any] = {"data": reader.root, "texts": reader.texts, "complete": reader.complete}
    return Source(path=text.path, folder=text.folder, findings=tuple(reader.findings), **places, **read)


class _Stop(Exception):
    """Nothing after this place can be read."""


class _Reader:
    """Puts parser events together: `root`, `locations`, `keys`, `findings`."""

    def __init__(self, text: Text, dialect: Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self.root: object = None
        self.locations: dict[str, Location] = {}
        self.keys: dict[str, Location] = {}
        self.findings: list[Finding] = []
        self.texts: dict[str, str] = {}
        self.odd_keys: dict[str, object] = {}
        self.complete = True
        self._stack: list[Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._nodes = 0
        self._documents = 0
        self._reached = (0, 0)  #: line and column of the end of the last event

    def run(self) -> None:
        """Read every event; ends early, with a finding, where the text can't be read on."""
        try:
            for event in self._events():
                if isinstance(event, yaml.ScalarEvent):
                    self._scalar(event)
                elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                    self._open(event)
                elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                    self._close()
                elif isinstance(event, yaml.AliasEvent):
                    self._alias(event)
                elif isinstance(event, yaml.DocumentStartEvent):
                    self._documents += 1
                    if self._documents > 1:
                        self._refuse(event, UNSUPPORTED_YAML, "a second document starts here", self.dialect.single)
                        raise _Stop
        except _Stop:
            self.complete = False

    def _events(self) -> Iterator[Any]:
        try:
            slow = self.dialect.own_parser and len(self.text.content) <= MAX_SLOW
            event: Any
            for event in yaml.parse(yaml_text(self.text.content), Loader=yaml.SafeLoader if slow else _PARSER):
                self._reached = event.end_mark.line, event.end_mark.column
                yield event
        except yaml.MarkedYAMLError as problem:
            unclosed = "quoted" in str(problem.context) and "unexpected" in str(problem.problem)
            mark = problem.context_mark if unclosed else problem.problem_mark or problem.context_mark
            where = self.text.locate(mark.line, mark.column) if mark else Location(path=self.text.path)
            hint = "quote text that has `: `, ` #` or starts with one of [ ] { } & * ! | > % @ `"
            if where.excerpt and "\t" in where.excerpt[: where.column]:
                hint = "indent with spaces; YAML doesn't allow tabs there"
            elif "flow" in str(problem.context):
                hint = "close every { and [ that is opened, with commas between the entries"
            elif unclosed:
                hint = "close the quote"
            elif (
                mark
                and ":" not in (before := (where.excerpt or "")[: mark.column])
                and ("mapping values" in str(problem.problem) or not before.strip())
            ):
                hint = "indent the keys of one mapping by the same number of spaces"
            self.findings.append(SYNTAX.at(where, syntax_message(problem), hint))
            raise _Stop from None
        except (yaml.YAMLError, ValueError, OverflowError) as problem:  # escapes that name no character
            known = isinstance(problem, yaml.YAMLError)
            reason = str(problem).splitlines()[0] if known else "an escape of no character"
            where = self.text.locate(*self._reached)
            self.findings.append(SYNTAX.at(where, f"invalid YAML: {reason}"))
            raise _Stop from None

    def _refuse(self, event: Any, rule: Rule, message: str, hint: str | None = None) -> None:
        where = self.text.locate(event.start_mark.line, event.start_mark.column, self._pointer())
        self.findings.append(rule.at(where, message, hint))

    def _pointer(self) -> str:
        """Return the pointer at which the value that comes next goes."""
        if not self._stack:
            return ""
        top = self._stack[-1]
        part = str(len(top.value)) if isinstance(top.value, list) else escape(top.key or "")
        return f"{top.pointer}/{part}"

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _scalar(self, event: Any) -> None:
        if self._expects_key():
            self._key(event)
            return
        try:
            value: object = self.dialect.scalar(event.value, plain=event.implicit[0], tag=event.tag)
        except ValueError as problem:
            self._refuse(event, UNSUPPORTED_YAML, str(problem), "quote the text, or write a plain value")
            value = event.value
        self._count(event, 1)
        if isinstance(value, (int, float)):
            self.texts[self._pointer()] = event.value
        self._place(event, value)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)

    def _key(self, event: Any) -> None:
        top, key = self._stack[-1], event.value
        top.key, line = key, event.start_mark.line + 1
        where = self.text.locate(event.start_mark.line, event.start_mark.column, self._pointer())
        if key == "<<" and event.implicit[0] and self.dialect.merges:
            top.merging = where
            return
        if key == "<<" and event.implicit[0]:
            top.dropped = True
            self._refuse(event, UNSUPPORTED_YAML, "merge keys (`<<`) are not supported", "write the keys out")
        elif key in top.key_lines:
            top.dropped = not self.dialect.last_wins
            first = top.key_lines[key]
            self._refuse(event, DUPLICATE_KEY, f"duplicate key `{key}`, first on line {first}", "keep one of them")
        elif self.dialect.typed_keys:
            try:
                typed = self.dialect.scalar(key, plain=event.implicit[0], tag=event.tag)
            except ValueError as problem:
                self._refuse(event, UNSUPPORTED_YAML, str(problem), "quote the key")
                typed = key
            if not isinstance(typed, str):
                self.odd_keys[where.pointer] = typed
        elif event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._refuse(
                event, UNSUPPORTED_YAML, f"unsupported tag {short_tag(event.tag)} on a key", "write a plain key"
            )
        if not top.dropped:
            top.key_lines[key] = line
            if not top.unplaced:
                self.keys[where.pointer] = where

    def _open(self, event: Any) -> None:
        kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
        if self._expects_key():
            self._refuse(event, UNSUPPORTED_YAML, "a key is text, not a list or a mapping", "quote it if it is text")
            raise _Stop
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{kind}"):
            self._refuse(event, UNSUPPORTED_YAML, f"unsupported tag {short_tag(event.tag)}", "remove the tag")
        if len(self._stack) >= MAX_DEPTH:
            self._refuse(event, TOO_LARGE, f"nested more than {MAX_DEPTH} levels deep", self.dialect.deep_hint)
            raise _Stop
        self._count(event, 1)
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        value: dict[str, object] | list[object] = {} if kind == "map" else []
        opened = Open(
            value=value,
            pointer=self._pointer(),
            anchor=event.anchor,
            nodes_before=self._nodes,
            unplaced=bool(self._stack) and self._stack[-1].hides,
        )
        self._place(event, value)
        self._stack.append(opened)

    def _close(self) -> None:
        closed = self._stack.pop()
        if closed.merged:
            taken, bad = closed.merge()
            for pointer, where in taken.items():
                self.locations[pointer] = self.keys[pointer] = replace(where, pointer=pointer)
            for where in bad:
                hint = "name an anchor of a mapping, such as *common"
                self.findings.append(SYNTAX.at(where, "`<<` merges mappings, and this is not one", hint))
        if closed.anchor:
            self._anchors[closed.anchor] = (closed.value, 1 + self._nodes - closed.nodes_before)

    def _alias(self, event: Any) -> None:
        known = self._anchors.get(event.anchor)
        if self._expects_key() or known is None:
            problem = "can't be a key" if known else "refers to no anchor, or to one that is still open"
            self._refuse(event, UNSUPPORTED_YAML, f"the alias *{event.anchor} {problem}", "write the value out")
            raise _Stop
        value, nodes = known
        self._count(event, nodes)
        self._place(event, value)

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            message = f"more than {MAX_NODES:,} values, with aliases expanded"
            self._refuse(event, TOO_LARGE, message, self.dialect.many_hint)
            raise _Stop

    def _place(self, event: Any, value: object) -> None:
        pointer = self._pointer()
        where = self.text.locate(event.start_mark.line, event.start_mark.column, pointer)
        if not self._stack:
            self.root = value
            self.locations[pointer] = where
            return
        top = self._stack[-1]
        if top.merging is not None:
            top.merged.append((value, top.merging))
        elif isinstance(top.value, list):
            top.value.append(value)
        elif not top.dropped:
            key = top.key or ""
            before, scalar = top.value.get(key), not isinstance(value, (dict, list))
            refused = bool(self.findings) and self.findings[-1].rule == DUPLICATE_KEY.id
            alike = before is None or (type(before) is type(value) and before == value)
            if refused and scalar and alike:  # the key of just now
                self.findings[-1] = replace(self.findings[-1], severity=NOTE)
            top.value[key] = value
        if not top.hides:
            self.locations[pointer] = where
        top.key, top.dropped, top.merging = None, False, None
