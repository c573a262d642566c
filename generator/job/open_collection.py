"""A list or mapping of YAML while it is being read."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..findings import Location
from .pointer import escape


@dataclass(slots=True)
class Open:
    """A collection that is being read."""

    value: dict[str, object] | list[object]
    pointer: str
    anchor: str | None
    nodes_before: int
    key: str | None = None  # of the value that comes next, in a mapping
    dropped: bool = False  # the value that comes next belongs to a key that was refused
    unplaced: bool = False  # this collection is within such a value: its places would hide those of the first
    key_lines: dict[str, int] = field(default_factory=dict)
    merging: Location | None = None  # of the `<<` whose value comes next
    merged: list[tuple[object, Location]] = field(default_factory=list)

    @property
    def hides(self) -> bool:
        """Whether what comes next has no place of its own."""
        return self.dropped or self.unplaced or self.merging is not None

    def merge(self) -> tuple[dict[str, Location], list[Location]]:
        """Take in the keys that `<<` names, as far as the mapping has none of its own; the first to give one wins.

        Returns the places that its values get, by pointer, and the places of what is no mapping.
        """
        taken: dict[str, Location] = {}
        bad: list[Location] = []
        own = self.value if isinstance(self.value, dict) else {}
        for merged, where in self.merged:
            for part in merged if isinstance(merged, list) else [merged]:
                if not isinstance(part, dict):
                    bad.append(where)
                    continue
                new = [key for key in part if key not in own]
                own.update((key, part[key]) for key in new)
                if not self.unplaced:
                    taken.update((f"{self.pointer}/{escape(key)}", where) for key in new)
        return taken, bad
