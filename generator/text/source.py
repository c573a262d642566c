"""A document in YAML or JSON as plain data, with the place of every key and value.

Job specs are YAML 1.2 (core schema) and JSON; files of other programs have other dialects.

The parser is PyYAML's (libyaml's where it is compiled in). Its events are put together here: so
places are kept, duplicate keys are seen, and neither deep nesting nor aliases can exhaust the
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from ..dataclass import dataclass
from ..findings import NOTE, Finding, Location
from ..patterns import lazy_pattern
from ..rule import Rule
from .codes import DUPLICATE_KEY, SYNTAX, TOO_LARGE, UNREADABLE, UNSUPPORTED_YAML
from .text import Text
from .wording import NOTHING, value_at, whole_number
from .wording import escape as escape
from .yaml_core import STRICT, Dialect, short_tag, syntax_message, yaml_text

FLAGS: Final = "<flags>"  #: the path of what the command line gives
MAX_DEPTH: Final = 32  # of mappings in mappings: no spec is as deep
MAX_NODES: Final = 20_000  # values after aliases are expanded
MAX_SLOW: Final = 60_000  # characters that a parser in Python reads in a quarter of a second

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: What libyaml and PyYAML's own parser read, or place, otherwise: tabs, `?` in flow collections, a
#: comment right behind the sign of a block, tags, and values that are left out between brackets.
#: 150,000 other texts gave both the same events.
_READ_OTHERWISE: Final = lazy_pattern(
    r"[\t?]|[|>][+-]?[0-9]?[+-]?#|[:,]\s{0,99}[,}\]]|(?<![\w#\"'])!"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document as plain data: dict, list, str, int, float, bool, None.

    Pointers are JSON pointers (RFC 6901).
    """

    path: str
    data: object
    locations: Mapping[str, Location]  #: of every value
    keys: Mapping[str, Location]  #: of every mapping key, by the pointer of its value
    #: what is wrong with the text; what could be read is in `data` all the same
    findings: tuple[Finding, ...]
    #: numbers as they were written: `1e-4`, `1.10`, `007`
    texts: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True  #: whether the text could be read to its end
    folder: Path | None = None  #: where relative paths in the document start
    #: keys that the dialect reads as something else than text, by pointer
    odd_keys: Mapping[str, object] = field(default_factory=dict)
    #: whether a file may be read for a document in a folder; None: any file may
    may_read: Callable[[Path, Path], bool] | None = None

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
        """The file that the value at `pointer` names.

        A path starts from the document's folder, one in a flag from the working directory.
        """
        folder = None if self.locate(pointer).path == FLAGS else self.folder
        return (folder or Path()) / value

    def refused(self, rule: Rule, pointer: str, path: Path) -> tuple[Finding, ...]:
        """A note where a document that nobody named leads to a file outside of its project."""
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
    """`text` as data. Bad text doesn't raise: `findings` has all that is wrong."""
    if text.content.strip():
        reader = _read(text, dialect)
    else:
        reader = _Reader(text, dialect, _PARSER)
        reader.complete = False
        reader.findings.append(
            UNREADABLE.at(text.locate(0, 0), "the file is empty", dialect.empty_hint)
        )
    return Source(
        path=text.path,
        folder=text.folder,
        data=reader.root,
        texts=reader.texts,
        complete=reader.complete,
        locations=reader.locations,
        keys=reader.keys,
        odd_keys=reader.odd_keys,
        findings=tuple(reader.findings),
    )


def _read(text: Text, dialect: Dialect) -> _Reader:
    """Read a text that isn't empty, by libyaml where PyYAML's own parser would read the same."""
    wants_own = dialect.own_parser and len(text.content) <= MAX_SLOW
    if not (wants_own and _READ_OTHERWISE.search(text.content)):
        reader = _Reader(text, dialect, _PARSER)
        reader.run()
        # What it refuses the other one says in its own words; an empty document is elsewhere to it.
        if not wants_own or (reader.complete and reader.root is not None):
            return reader
    reader = _Reader(text, dialect, yaml.SafeLoader)
    reader.run()
    return reader


class _Stop(Exception):
    """Nothing after this place can be read."""


class _Reader:
    """Puts parser events together: `root`, `locations`, `keys`, `findings`."""

    def __init__(self, text: Text, dialect: Dialect, parser: Any) -> None:
        self.text = text
        self.dialect = dialect
        self._parser = parser
        self.root: object = None
        self.locations: dict[str, Location] = {}
        self.keys: dict[str, Location] = {}
        self.findings: list[Finding] = []
        self.texts: dict[str, str] = {}
        self.odd_keys: dict[str, object] = {}
        self.complete = True
        self._anchors: dict[str, tuple[object, int]] = {}  # values, with the number of theirs
        self._nodes = self._depth = 0
        self._reached = (0, 0)  # line and column of the end of the last event
        self._remaining = self._events()

    def run(self) -> None:
        """Read every event; ends early, with a finding, where the text can't be read on."""
        documents = 0
        try:
            for event in self._remaining:
                if isinstance(event, yaml.NodeEvent):
                    self._value(event, "", lambda value: setattr(self, "root", value))
                elif isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        message = "a second document starts here"
                        self._stop(event, "", UNSUPPORTED_YAML, message, self.dialect.single)
        except _Stop:
            self.complete = False

    def _events(self) -> Iterator[Any]:
        """The parser's events. Where it fails, a finding is noted and the reading stops."""
        try:
            event: Any
            for event in yaml.parse(yaml_text(self.text.content), Loader=self._parser):
                self._reached = event.end_mark.line, event.end_mark.column
                yield event
        except yaml.MarkedYAMLError as problem:
            self.findings.append(self._syntax_error(problem))
            raise _Stop from None
        except (yaml.YAMLError, ValueError, OverflowError) as problem:
            # Escapes that name no character raise the other two.
            is_of_yaml = isinstance(problem, yaml.YAMLError)
            reason = str(problem).splitlines()[0] if is_of_yaml else "an escape of no character"
            where = self.text.locate(*self._reached)
            self.findings.append(SYNTAX.at(where, f"invalid YAML: {reason}"))
            raise _Stop from None

    def _syntax_error(self, problem: yaml.MarkedYAMLError) -> Finding:
        """The finding on what the parser refuses, with a hint on the likely cause."""
        is_unclosed = "quoted" in str(problem.context) and "unexpected" in str(problem.problem)
        mark = problem.problem_mark or problem.context_mark
        if is_unclosed:
            mark = problem.context_mark
        where = self.text.locate(mark.line, mark.column) if mark else Location(path=self.text.path)
        message = syntax_message(problem)
        if "nesting depth" in str(problem.problem):  # libyaml's limit, in PyYAML since 6.0.4
            return TOO_LARGE.at(where, message, self.dialect.deep_hint)

        if "expected ':'" in str(problem.problem) and problem.context_mark:
            # The parser tells where it is: at the text behind the key.
            key = problem.context_mark
            where = self.text.locate(key.line, key.column)
            return SYNTAX.at(where, message, "write a colon behind this key, or quote the text")
        if mark and self._begins_with_other_text(mark.line):
            hint = "remove this line: YAML begins with a key or an item"
            return SYNTAX.at(self.text.locate(0, 0), message, hint)

        line = where.excerpt or ""
        before = line[: mark.column] if mark else ":"
        may_be_indented_wrongly = ":" not in before and (
            "mapping values" in str(problem.problem) or not before.strip()
        )
        if "\t" in line[: where.column]:
            hint = "indent with spaces; YAML doesn't allow tabs there"
        elif "flow" in str(problem.context):
            hint = "close every { and [ that is opened, with commas between the entries"
        elif is_unclosed:
            hint = "close the quote"
        elif may_be_indented_wrongly:
            hint = "indent the keys of one mapping by the same number of spaces"
        else:
            hint = "quote text that has `: `, ` #` or starts with one of [ ] { } & * ! | > % @ `"
        return SYNTAX.at(where, message, hint)

    def _begins_with_other_text(self, line: int) -> bool:
        """Whether a fault right below the first line is that one's, which has neither a key nor an
        item: a command of a shell that writes the file, say.
        """
        first = self.text.lines[0].strip()
        is_structure = not first or ":" in first or first.startswith(tuple("-#%{[\"'&!|>"))
        return line == 1 and not is_structure

    def _refuse(self, event: Any, pointer: str, rule: Rule, message: str, hint: str) -> None:
        self.findings.append(rule.at(self._locate(event, pointer), message, hint))

    def _stop(self, event: Any, pointer: str, rule: Rule, message: str, hint: str) -> NoReturn:
        self._refuse(event, pointer, rule, message, hint)
        raise _Stop

    def _locate(self, event: Any, pointer: str) -> Location:
        return self.text.locate(event.start_mark.line, event.start_mark.column, pointer)

    def _value(
        self, event: Any, pointer: str, put: Callable[[Any], None], hidden: bool = False
    ) -> None:
        """Read a value, and hand it on before what it holds.

        A `hidden` value has no place: another value has its pointer.
        """
        nodes, value = 1, self._begun(event, pointer)
        if isinstance(event, yaml.AliasEvent):
            value, nodes = self._aliased(event, pointer)
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            message = f"more than {MAX_NODES:,} values, with aliases expanded"
            self._stop(event, pointer, TOO_LARGE, message, self.dialect.many_hint)
        if isinstance(event, yaml.ScalarEvent) and isinstance(value, (int, float)):
            self.texts[pointer] = event.value
        put(value)
        if not hidden:
            self.locations[pointer] = self._locate(event, pointer)
        if isinstance(event, yaml.AliasEvent):
            return
        nodes_before, anchor = self._nodes, event.anchor
        if isinstance(event, yaml.CollectionStartEvent):
            self._anchors.pop(anchor, None)  # until it is closed
            self._depth += 1
            if isinstance(value, list):
                self._list(value, pointer, hidden)
            else:
                self._mapping(value, pointer, hidden)
            self._depth -= 1
        if anchor:
            self._anchors[anchor] = (value, 1 + self._nodes - nodes_before)

    def _begun(self, event: Any, pointer: str) -> Any:
        """The value of a scalar, else an empty collection."""
        if isinstance(event, yaml.ScalarEvent):
            try:
                return self.dialect.scalar(event.value, plain=event.implicit[0], tag=event.tag)
            except ValueError as problem:
                self._refuse(
                    event,
                    pointer,
                    UNSUPPORTED_YAML,
                    str(problem),
                    "quote the text, or write a plain value",
                )
            return event.value
        if isinstance(event, yaml.CollectionStartEvent):
            kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
            if event.tag not in (None, "!", f"tag:yaml.org,2002:{kind}"):
                message = f"unsupported tag {short_tag(event.tag)}"
                self._refuse(event, pointer, UNSUPPORTED_YAML, message, "remove the tag")
            if self._depth >= MAX_DEPTH:
                message = f"nested more than {MAX_DEPTH} levels deep"
                self._stop(event, pointer, TOO_LARGE, message, self.dialect.deep_hint)
            return {} if kind == "map" else []
        return None

    def _aliased(self, event: Any, pointer: str, is_key: bool = False) -> tuple[object, int]:
        """The value that an alias stands for, and the number of values in it."""
        anchored = self._anchors.get(event.anchor)
        if is_key or anchored is None:
            problem = "refers to no anchor, or to one that is still open"
            if anchored:
                problem = "can't be a key"
            message = f"the alias *{event.anchor} {problem}"
            self._stop(event, pointer, UNSUPPORTED_YAML, message, "write the value out")
        return anchored

    def _list(self, value: list[object], pointer: str, hidden: bool) -> None:
        for event in self._remaining:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            self._value(event, f"{pointer}/{len(value)}", value.append, hidden)

    def _mapping(self, value: dict[str, object], pointer: str, hidden: bool) -> None:
        lines: dict[str, int] = {}  # of the keys
        merged: list[object] = []  # what `<<` names
        merges: list[Location] = []  # and the place of each
        for event in self._remaining:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if isinstance(event, yaml.AliasEvent):
                self._aliased(event, f"{pointer}/", is_key=True)
            if not isinstance(event, yaml.ScalarEvent):
                message = "a key is text, not a list or a mapping"
                self._stop(
                    event, f"{pointer}/", UNSUPPORTED_YAML, message, "quote it if it is text"
                )
            key, at = event.value, f"{pointer}/{escape(event.value)}"
            where = self._locate(event, at)
            if key == "<<" and event.implicit[0] and self.dialect.merges:
                merges.append(where)
                self._value(next(self._remaining), at, merged.append, True)
            elif self._keeps(event, at, lines):
                before = value.get(key) if key in lines else None
                of_key = len(self.findings) - 1  # the finding, where it is a duplicate
                lines[key] = where.line or 1
                if not hidden:
                    self.keys[at] = where
                self._value(next(self._remaining), at, partial(self._set, value, key), hidden)
                is_repeated = isinstance(before, (dict, list)) and value[key] == before
                if is_repeated:
                    self.findings[of_key] = replace(self.findings[of_key], severity=NOTE)
            else:
                self._value(next(self._remaining), at, lambda _: None, True)
        for part, where in zip(merged, merges, strict=True):
            self._merge(value, pointer, part, where, hidden)

    def _keeps(self, event: Any, at: str, lines: Mapping[str, int]) -> bool:
        """Return whether the value of a key counts; report what is wrong with the key."""
        key, plain = event.value, event.implicit[0]
        if key == "<<" and plain:
            message = "merge keys (`<<`) are not supported"
            self._refuse(event, at, UNSUPPORTED_YAML, message, "write the keys out")
            return False
        if key in lines:
            counts = ": the last one counts" if self.dialect.last_wins else ""
            message = f"duplicate key `{key}`, first on line {lines[key]}{counts}"
            self._refuse(event, at, DUPLICATE_KEY, message, "keep one of them")
            return self.dialect.last_wins
        if self.dialect.typed_keys:
            try:
                typed = self.dialect.scalar(key, plain=plain, tag=event.tag)
            except ValueError as problem:
                self._refuse(event, at, UNSUPPORTED_YAML, str(problem), "quote the key")
                typed = key
            if not isinstance(typed, str):
                self.odd_keys[at] = typed
        elif event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            message = f"unsupported tag {short_tag(event.tag)} on a key"
            self._refuse(event, at, UNSUPPORTED_YAML, message, "write a plain key")
        return True

    def _set(self, mapping: dict[str, object], key: str, value: object) -> None:
        """Set a key. That it is there twice is a note only, where nothing is lost by it."""
        is_twice = key in mapping and self.findings[-1].rule == DUPLICATE_KEY.id
        if is_twice and not isinstance(value, (dict, list)):
            before = mapping[key]
            is_same = type(before) is type(value) and before == value
            if before is None or is_same:
                self.findings[-1] = replace(self.findings[-1], severity=NOTE)
        mapping[key] = value

    def _merge(
        self,
        mapping: dict[str, object],
        pointer: str,
        merged: object,
        where: Location,
        hidden: bool,
    ) -> None:
        """Take in the keys that a `<<` names, where the mapping has no such key of its own.

        If several mappings have a key, the first one's counts.
        """
        for part in merged if isinstance(merged, list) else [merged]:
            if not isinstance(part, dict):
                hint = "name an anchor of a mapping, such as *common"
                self.findings.append(
                    SYNTAX.at(where, "`<<` merges mappings, and this is not one", hint)
                )
                continue
            new_keys = [key for key in part if key not in mapping]
            for key in new_keys:
                mapping[key] = part[key]
                at = f"{pointer}/{escape(key)}"
                if not hidden:
                    self.locations[at] = self.keys[at] = replace(where, pointer=at)
