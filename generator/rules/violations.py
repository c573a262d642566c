"""Violations at a name of a document, and the nearest of the names that are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Protocol

from ..facts.words import is_to_fill, is_words
from ..findings import NOTE, Edit, Location, Severity, Violation
from .numbers import listed


class Located(Protocol):
    """A document that has a place for every name."""

    def locate(self, name: str, /) -> Location:
        """The place of a value, else of the nearest thing around it."""


def violation(
    document: Located,
    name: str,
    message: str,
    hint: str | None = None,
    *,
    severity: Severity | None = None,
    edits: tuple[Edit, ...] = (),
) -> Violation:
    """A violation at the value of this name."""
    return Violation(document.locate(name), message, hint, severity=severity, edits=edits)


def note_if_to_fill(text: object, name: str = "", otherwise: Severity | None = None) -> Severity | None:
    """The severity of what is wrong with the value of `name`: a note where the reader is to write another."""
    return NOTE if isinstance(text, str) and (is_words(text) or is_to_fill(text, name)) else otherwise


def suggest(text: str, choices: Iterable[str], otherwise: str | None = None) -> str:
    """A hint that names the nearest choice, else says `otherwise`, else lists them all."""
    names = list(choices)
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else otherwise or f"use {listed(names)}"
