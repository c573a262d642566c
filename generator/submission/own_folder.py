"""The folder that a word of a script has from the script's own place: `$(dirname "$0")/..`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..patterns import lazy_pattern
from ..text.shell.records import ShellScript

#: What leads on from a folder: `/..`, `/src`.
_ON: Final = r"((?:/[\w.-]{1,100}){0,20})/?"
_VARIABLE: Final = lazy_pattern(rf"\$(?:(\w+)|\{{(\w+)(?:\[0\])?\}}){_ON}")
_OWN_WITHOUT_NAME: Final = lazy_pattern(rf"\$\{{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}}{_ON}")
_OF_PATH: Final = lazy_pattern(rf"\$\(\s*dirname\s+(?:--\s+)?(\S.{{0,400}}?)\s*\){_ON}")
_RESOLVED: Final = lazy_pattern(
    rf"\$\(\s*(?:readlink\s+-\w*[ef]\w*|realpath)\s+(\S.{{0,400}}?)\s*\){_ON}"
)
_ENTERED: Final = lazy_pattern(
    rf"\$\(\s*(?:CDPATH=\s*)?cd\s+(?:--\s+|-P\s+)?(\S.{{0,400}}?)\s*"
    rf"(?:&?>\s*/dev/null\s*(?:2>&1\s*)?)?(?:&&|;)\s*pwd(?:\s+-[LP])?\s*\){_ON}"
)
_SELF: Final = frozenset({"0", "BASH_SOURCE"})
_DEEPEST: Final = 8  # expansions within one another


def path_from_script(raw: str, shell: ShellScript, deepest: int = _DEEPEST) -> Path | None:
    """Return the path that a word names by the script's own; None where it names none so."""
    text = raw.replace('"', "").strip()
    if not deepest or not text.startswith("$"):
        return None

    for pattern, up in ((_ENTERED, 0), (_OF_PATH, 1), (_RESOLVED, 0)):
        match = pattern.fullmatch(text)
        inner = path_from_script(match[1], shell, deepest - 1) if match is not None else None
        if match is not None and inner is not None:
            return _joined(inner, [".."] * up, match[2])

    script = Path(os.path.normpath(Path(shell.text.path).absolute()))
    bare = _OWN_WITHOUT_NAME.fullmatch(text)
    if bare is not None:
        return _joined(script.parent, [], bare[1])
    variable = _VARIABLE.fullmatch(text)
    if variable is None:
        return None
    name = variable[1] or variable[2]
    if name in _SELF:
        return _joined(script, [], variable[3])
    values = [one.raw for one in shell.assignments if one.name == name and not one.only_exports]
    inner = path_from_script(values[0], shell, deepest - 1) if len(values) == 1 else None
    return None if inner is None else _joined(inner, [], variable[3])


def _joined(path: Path, up: list[str], on: str) -> Path:
    return Path(os.path.normpath(path.joinpath(*up, *on.split("/"))))
