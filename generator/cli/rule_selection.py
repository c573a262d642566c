"""`--select` and `--ignore`: which rules' findings are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .unknown import unknown

if TYPE_CHECKING:
    from ..findings import Finding

# Imports within functions save start-up time.

#: Told whatever is selected, unless ignored by name: files that could not be read were not checked at all.
_UNREAD: Final = frozenset(
    {
        *("FILE001", "FILE002", "FILE004", "FILE005", "FILE006"),
        *("SPEC001", "SPEC002", "SPEC004", "SPEC005", "SPEC014"),
        "PARSE016",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Ids and prefixes of ids, such as `SLM` and `SLM004`. The longest that fits a rule decides; of two, `ignore`."""

    select: tuple[str, ...] = ()  #: empty: all
    ignore: tuple[str, ...] = ()

    def keeps(self, finding: Finding) -> bool:
        """Whether the finding is told."""
        wanted = 0 if not self.select or finding.rule in _UNREAD else -1
        return max(wanted, _longest(self.select, finding.rule)) > _longest(self.ignore, finding.rule)


def selection(select: Iterable[str], ignore: Iterable[str]) -> Selection:
    """What the flags say; refuses an id or prefix that no rule has."""
    return Selection(select=_ids(select), ignore=_ids(ignore))


def _longest(prefixes: tuple[str, ...], rule: str) -> int:
    return max((len(prefix) for prefix in prefixes if rule.startswith(prefix)), default=-1)


def _ids(values: Iterable[str]) -> tuple[str, ...]:
    given = tuple(part.strip().upper() for value in values for part in value.split(",") if part.strip())
    if given:
        from .known_rules import known_rules

        known = [rule.id for rule in known_rules()]
        for name in given:
            if not any(rule.startswith(name) for rule in known):
                subjects = sorted({rule.rstrip("0123456789") for rule in known})
                unknown("rule", name, (*known, *subjects))
    return given
