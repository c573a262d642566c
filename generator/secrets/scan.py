"""Finds the secrets in a text of any kind: a script, YAML, JSON, a line of a log, a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits
from typing import Final

from ..dataclass import dataclass
from .names import likeness, patterns
from .values import holds

_WORDS: Final = "token|key|pass(?:word|wd|phrase|code)?|pwd|pw|secret|cred(?:ential)?s?|auth(?:orization)?|bearer"
_MORE: Final = "pat|sas|jwt|dsn|cookie|str(?:ing)?|key_?id|contrasena"
_QUOTED: Final = r""""(?P<double>(?:[^"\\\n]|\\.){0,4096})"|'(?P<single>[^'\n]{0,4096})'"""
_BARE: Final = r"""(?P<bare>(?:[^\s"';|<>()`,}\]&]|[,&](?=[^\s&"'])){1,4096})"""
_VALUE: Final = f"(?:{_QUOTED}|{_BARE})"
#: Between a name and its value: `=` and its like; for options also a space, a comma, or the next item of a list.
_SET: Final = r"""["']?\]?[ \t]{0,8}(?::[-=]|=>|=(?!=)|:)[ \t]{0,8}"""
_NEXT: Final = r"""["']?[ \t]{0,8}(?:,\s{0,40}|\\?\r?\n[ \t]{0,40}(?:-[ \t]{1,8})?|[ \t])[ \t]{0,8}"""
_NAMED: Final = (
    rf"(?i)(?P<word>{_WORDS}|{_MORE})(?P<tail>[\w.-]{{0,24}}?)(?:(?P<set>{_SET})|(?P<next>{_NEXT}))(?P<value>{_VALUE})"
)
_IN_NAMES: Final = f"{ascii_letters}{digits}_.-"
_LONGEST_NAME: Final = 80
_LONGEST_INDENT: Final = 200
_LONGEST_BLOCK: Final = 8192  # characters of a key whose end is missing
_SETENV: Final = re.compile(r"(?:setenv|ENV)[ \t]+\Z")
_CODE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_]\w*_(?:token|key|password|secret)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a text: characters `start` up to `end`."""

    start: int
    end: int
    name: str  #: of its variable, option or key; empty where only its form tells
    what: str  #: `a token of Hugging Face`; empty where only its name tells
    at: int  #: where its name starts
    sure: bool = True  #: whether a stranger's file is judged by it

    def value_in(self, text: str) -> str:
        """The secret itself."""
        return text[self.start : self.end]


def find(text: str) -> tuple[Secret, ...]:
    """The secrets in a text, in order, none within another."""
    found = sorted((*_by_form(text), *_by_name(text)), key=lambda secret: (secret.start, -secret.end))
    kept: list[Secret] = []
    for secret in found:
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end or (secret.what and not kept[-1].what):
            kept[-1] = _joined(kept[-1], secret)
    return tuple(kept)


def _joined(one: Secret, other: Secret) -> Secret:
    """Two that overlap as one: named by the one, with the form of either."""
    return Secret(
        start=min(one.start, other.start),
        end=max(one.end, other.end),
        name=one.name or other.name,
        what=one.what or other.what,
        at=min(one.at, other.at),
        sure=one.sure or other.sure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How secrets of a kind are written."""

    what: str
    pattern: re.Pattern[str]
    needs: frozenset[str]  #: a text without any of these, in small letters, has none
    ends: str  #: where the secret ends, if not with the pattern


@cache
def _forms() -> tuple[_Form, ...]:
    """**Source**: `patterns.json`, which names the detector of each."""
    return tuple(
        _Form(
            what=form["what"],
            pattern=re.compile(form["pattern"]),
            needs=frozenset(form["needs"]),
            ends=form.get("ends", ""),
        )
        for form in patterns()["forms"]
    )


@cache
def _needed() -> tuple[str, ...]:
    """What the forms need, of which most texts have nothing."""
    return tuple(frozenset[str]().union(*(form.needs for form in _forms())))


def _by_form(text: str) -> Iterator[Secret]:
    small = text.lower()
    there = [part for part in _needed() if part in small]
    for form in _forms() if there else ():
        if not form.needs.isdisjoint(there):
            yield from _of_block(text, form) if form.ends else _of_form(text, form)


def _of_form(text: str, form: _Form) -> Iterator[Secret]:
    for match in form.pattern.finditer(text):
        start, end = match.span(form.pattern.groups)
        if not form.pattern.groups or not _is_variable(match[1]):
            yield Secret(start=start, end=end, name="", what=form.what, at=start)


def _of_block(text: str, form: _Form) -> Iterator[Secret]:
    position, last = 0, text.rfind(form.ends)
    while match := form.pattern.search(text, position):
        end = text.find(form.ends, match.end()) if last >= match.end() else -1
        stop = text.find("\n", end) if end >= 0 else match.end() + _LONGEST_BLOCK
        position = len(text) if stop < 0 else min(stop, len(text))
        yield Secret(start=match.start(), end=position, name="", what=form.what, at=match.start())


def _is_variable(value: str) -> bool:
    """Whether what is where a secret would be is a variable, or says that one belongs there."""
    plain = value.strip("*x.X") == "" or value.lower() in ("password", "pass", "passwd", "token", "pw", "pwd")
    return plain or value.startswith(("$", "%", "{", "<", "[")) or "${" in value


@cache
def _named_value() -> re.Pattern[str]:
    """A word of a secret's name with the value after it; compiled when first used."""
    return re.compile(_NAMED)


def _by_name(text: str) -> Iterator[Secret]:
    position, named = 0, _named_value()
    while match := named.search(text, position):
        before = text[max(0, match.start() - _LONGEST_NAME) : match.start()]
        begin = match.start() - len(before) + len(before.rstrip(_IN_NAMES))
        name = text[begin : match.start("set" if match["set"] is not None else "next")]
        secret = _named(text, match, name, begin)
        position = secret.end if secret else match.start("value") if match["set"] is not None else match.end("word")
        if secret:
            yield secret


def _named(text: str, match: re.Match[str], name: str, begin: int) -> Secret | None:
    """The secret that a match is, by the name before it."""
    if not likeness(name):
        return None
    option, bare = name.startswith("-"), match["bare"]
    if match["next"] is not None and not option and not _SETENV.search(text, max(0, begin - 12), begin):
        return None
    group = "bare" if bare is not None else "double" if match["double"] is not None else "single"
    start, end = match.span(group)
    if bare is not None:
        end = _end_of_line(text, begin, start, end, match["set"] or "")
        code = not option and (_CODE.fullmatch(text, start, end) is not None or text[end : end + 1] == "(")
        if code or bare[0] in "?+" or (match["next"] is not None and bare[0] == "-"):
            return None
    value, plain = text[start:end], name.strip("-.")
    if not holds(plain, value):
        return None
    return Secret(start=start, end=end, name=name, what="", at=begin, sure=holds(plain, value, sure=True))


def _end_of_line(text: str, begin: int, start: int, end: int, between: str) -> int:
    """Where a bare value ends: in YAML it may have spaces."""
    before = text[max(0, begin - _LONGEST_INDENT) : begin]  # not the whole line, which may be the whole file
    if between.strip() != ":" or before.rpartition("\n")[2].strip(" \t-"):
        return end
    stop = text.find("\n", end)
    rest = text[end : len(text) if stop < 0 else stop].split(" #")[0].rstrip()
    return end + len(rest)
