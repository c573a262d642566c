"""The ids of what can be wrong with a document as text, whatever it says. Ids are never reused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNREADABLE: Final = "FILE001"
SYNTAX: Final = "FILE002"
DUPLICATE_KEY: Final = "FILE003"
UNKNOWN_KIND: Final = "FILE004"
TOO_MUCH: Final = "FILE005"
UNKNOWN_NAME: Final = "FILE006"
USELESS_IGNORE: Final = "FILE007"
UNKNOWN_IGNORE: Final = "FILE008"
ENGINE_REFUSES: Final = "ENG001"
ENGINE_VERSION: Final = "ENG002"

TITLES: Final[Mapping[str, str]] = {
    UNREADABLE: "Every file is readable UTF-8 text.",
    SYNTAX: "A YAML document is well-formed.",
    DUPLICATE_KEY: "A mapping of a YAML document has each key once.",
    UNKNOWN_KIND: "A path names a kind of document that dsgen reads, or a folder that has one.",
    TOO_MUCH: "A submission stays within the limits of size, nesting and number of files.",
    UNKNOWN_NAME: "The cluster, model and job named beside the files are known.",
    USELESS_IGNORE: "A comment that ignores a rule stands where the rule finds something.",
    UNKNOWN_IGNORE: "A comment that ignores findings names rules that dsgen has.",
    ENGINE_REFUSES: "The installed DeepSpeed's own parser takes every DeepSpeed config (with --engine).",
    ENGINE_VERSION: "The installed DeepSpeed is the version that the files are checked for (with --engine).",
}

#: What the reader of job specs calls the same.
FROM_SPEC: Final[Mapping[str, str]] = {
    "SPEC001": UNREADABLE,
    "SPEC002": SYNTAX,
    "SPEC003": DUPLICATE_KEY,
    "SPEC004": SYNTAX,
    "SPEC005": TOO_MUCH,
    "SPEC011": UNKNOWN_NAME,
    "SPEC013": UNKNOWN_NAME,
    "SPEC014": UNREADABLE,
}
