"""How a project says that a script is submitted: the options that it gives to `sbatch` itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from posixpath import basename, normpath
from typing import Final

from ...patterns import lazy_pattern
from ...text.around import folders_above, matching, text_around, until_next_check
from ...text.text import Text
from ..launching.tables import TABLES

#: `sbatch -n 1 -t 20 ./job.sh`, behind the sign of a comment or a prompt
_CALL: Final = lazy_pattern(r"(?<![\w./-])sbatch[ \t]+([^\n;|&`]*)")
_CONTINUED: Final = lazy_pattern(r"\\[ \t]*\n[ \t]*#?[ \t]*")
#: `--time=20`, `--time 20`, `-t 20`, `-t20`, or an option without a value.
_OPTION: Final = lazy_pattern(
    r"(?<!\S)(?:(--[a-z][\w-]*)(?:[= ]([^\s-]\S*))?|(-[A-Za-z])(?:[= ]?([^\s=-]\S*))?)"
)
_VARIABLE: Final = lazy_pattern(r"\$\{?([A-Za-z_]\w*)\}?")
_README: Final = "[Rr][Ee][Aa][Dd][Mm][Ee]*"
_SCRIPTS: Final = "*.sh"
_MOST_SCRIPTS: Final = 64  # of a folder, which may submit one another
#: An option by its name in full, and the value that it is given, as written; empty: none.
Given = tuple[str, str]


def given_when_submitted(script: Text) -> frozenset[Given]:
    """The options that calls of `sbatch` with the script have, each with its value as written.

    The calls are those in its comments, the project's READMEs, and the scripts beside it. Options
    are named in full: `--ntasks` for `-n 1`.
    """
    texts = [
        _comments(script),
        *(text for folder in folders_above(script.path) for text in _readmes(folder)),
        *_submitting(Path(script.path).parent),
    ]
    given = frozenset[Given]()
    for text in texts:
        given |= _options_for(basename(script.path), text)
    return given


def _comments(script: Text) -> str:
    """The comments of a script; nothing where it has no call, as most have none."""
    if "sbatch" not in script.content:
        return ""
    return "\n".join(line for line in script.lines if line.lstrip().startswith("#"))


def _options_for(name: str, text: str) -> frozenset[Given]:
    """The options of the calls of `sbatch` in a text that name the script `name`."""
    if name not in text or "sbatch" not in text:
        return frozenset()

    options = set[Given]()
    for words in _calls_in(text):
        indices = (index for index, word in enumerate(words) if _names(word, name, text))
        at_script = next(indices, None)
        if at_script is None:
            continue
        for match in _OPTION.finditer(" ".join(words[:at_script])):
            long_name, long_value, letter, letter_value = match.groups()
            option = TABLES["sbatch"].find(long_name or letter)
            value = (long_value or letter_value or "").strip("\"'")
            if option is not None:
                options.add((option.name, value))
    return frozenset(options)


def _calls_in(text: str) -> Iterator[list[str]]:
    """The words of each call of `sbatch` in a text."""
    for call in _CALL.findall(_CONTINUED.sub(" ", text)):
        yield call.split()


def submitting_folders(script: str) -> frozenset[Path]:
    """The other folders whose scripts submit a script by its path from there, as `../job.sh`."""
    place, folders = Path(script).absolute(), set[Path]()
    around = (
        path
        for above in folders_above(script)
        for pattern in (_SCRIPTS, f"*/{_SCRIPTS}")
        for path in islice(matching(pattern, above, above), _MOST_SCRIPTS)
        if path.parent != place.parent
    )
    for path in around:
        text = text_around(path, path.parent)
        if place.name in text and "sbatch" in text:
            words = (word.strip("\"'") for call in _calls_in(text) for word in call)
            if any(normpath(path.parent / word) == str(place) for word in words if "/" in word):
                folders.add(path.parent)
    return frozenset(folders)


def _names(word: str, name: str, text: str) -> bool:
    """Return whether a word is the path of a file, quoted or not, or a variable that has one."""
    plain = word.strip("\"'")
    variable = _VARIABLE.fullmatch(plain)
    if variable is None:
        return basename(plain) == name
    value = rf"[\"']?(?:[^\s\"';#]*/)?{re.escape(name)}[\"']?"
    is_set = rf"^[ \t]*(?:\w+[ \t]+)?{variable[1]}={value}[ \t]*(?:[;#]|$)"
    return re.search(is_set, text, re.MULTILINE) is not None


@until_next_check(64)
def _submitting(folder: Path) -> tuple[str, ...]:
    """The texts of a folder's scripts that call `sbatch`."""
    paths = islice(matching(_SCRIPTS, folder, folder), _MOST_SCRIPTS)
    texts = (text_around(path, folder) for path in paths)
    return tuple(text for text in texts if "sbatch " in text)


@until_next_check(64)
def _readmes(folder: Path) -> tuple[str, ...]:
    return tuple(text_around(path, folder) for path in matching(_README, folder, folder))
