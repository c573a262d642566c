"""The kinds of files: the keys that are signs of each, and what reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from ..facts.document import Document, FileText, Kind
from ..findings import Finding
from ..resources import read_text


@cache
def entries() -> Mapping[Kind, Mapping[str, Any]]:
    """Return the entry of each kind in `kinds.json`.

    `reader` is the module below `programs` and the function that gives a file's documents, and findings on its text.
    Job specs, which `dsgen.job` reads, and scripts, which have several documents, have none. The other keys are signs:
    what `dsgen.check.kinds` knows the kind by. A kind that is known by lines or names alone has none of them.
    """
    read: Mapping[Kind, Mapping[str, Any]] = json.loads(read_text(__package__, "kinds.json"))
    return read


def read_as(kind: Kind, file: FileText) -> Iterator[Document | Finding]:
    """Read the documents of a file of a kind, and findings on its text."""
    module, _, function = entries()[kind]["reader"].partition(":")
    documents: Iterator[Document | Finding] = getattr(import_module(f".{module}", __package__), function)(file)
    return documents
