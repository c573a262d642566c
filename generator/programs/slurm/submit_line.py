"""How a project says that a script is submitted: the options that it gives to `sbatch` itself."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import basename
from typing import Final

from ...text.around import folders_above, matching, text_around, until_next_check
from ...text.text import Text
from ..launching.tables import TABLES

#: `sbatch -n 1 -t 20 ./job.sh`, behind the sign of a comment or a prompt
_CALL: Final = re.compile(r"(?<![\w./-])sbatch[ \t]+([^\n;|&`]*)")
_CONTINUED: Final = re.compile(r"\\[ \t]*\n[ \t]*#?[ \t]*")
_OPTION: Final = re.compile(r"(?<!\S)(--[a-z][\w-]*|-[A-Za-z])")
_README: Final = "[Rr][Ee][Aa][Dd][Mm][Ee]*"


def given_when_submitted(script: Text) -> frozenset[str]:
    """The options that a script's comments and the project's READMEs give to its `sbatch`.

    They are named in full: `--ntasks` for `-n 1`.
    """
    comments = "\n".join(line for line in script.lines if line.lstrip().startswith("#"))
    texts = [
        comments,
        *(text for folder in folders_above(script.path) for text in _readmes(folder)),
    ]
    names = frozenset[str]()
    for text in texts:
        names |= _options_for(basename(script.path), text)
    return names


def _options_for(name: str, text: str) -> frozenset[str]:
    """The options of the calls of `sbatch` in a text that name the script `name`."""
    if name not in text or "sbatch" not in text:
        return frozenset()

    found = set[str]()
    for call in _CALL.findall(_CONTINUED.sub(" ", text)):
        words = call.split()
        at = next((at for at, word in enumerate(words) if basename(word) == name), None)
        if at is not None:
            for written in _OPTION.findall(" ".join(words[:at])):
                known = TABLES["sbatch"].find(written)
                found |= {known.name} if known is not None else set()
    return frozenset(found)


@until_next_check(64)
def _readmes(folder: Path) -> tuple[str, ...]:
    return tuple(text_around(path, folder) for path in matching(_README, folder, folder))
