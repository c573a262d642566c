"""Regular expressions that are compiled when they are first used.

A command imports the patterns of up to eighty modules and uses a third of them; to compile them all
takes a twentieth of its time. So each module names its patterns by `lazy_pattern`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("match", "fullmatch", "search", "sub", "subn", "finditer", "findall", "split")


class LazyPattern:
    """A pattern that isn't compiled yet; its first use gives it the methods of `re.Pattern`."""

    compiled: re.Pattern[Any]

    def __init__(self, text: str | bytes, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name != "compiled":
            return getattr(self.compiled, name)
        self.compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(self.compiled, method))
        return self.compiled


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the pattern that `re.compile` makes, which is made when it is first used."""
    return cast("re.Pattern[AnyStr]", LazyPattern(text, flags))
