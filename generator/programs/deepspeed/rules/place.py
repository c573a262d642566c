"""A key in its place in a DeepSpeed config, and a problem with it: what the parser refuses, ignores or replaces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from ....dataclass import dataclass
from ....facts.hjson.edits import remove_member, replace_value
from ....findings import Severity, Violation
from ....job.wording import NOTHING
from ..config import Config
from ..schema import Section
from .subjects import Fix, edits_of, named, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A violation, and the id of the rule that it breaks."""

    rule: str
    violation: Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A key of a config: the section it is in, its pointer, and its value as hjson reads it."""

    config: Config
    section: Section
    pointer: str
    value: object

    @property
    def name(self) -> str:
        """The pointer as people write it, in backquotes."""
        return named(self.pointer)

    @property
    def siblings(self) -> Mapping[str, object]:
        """The keys beside it, and their values."""
        return self.config.block(self.pointer.rpartition("/")[0])

    @property
    def shown(self) -> str:
        """The value in a message."""
        return shown(self.value)

    @property
    def removal(self) -> Fix:
        """The fix that removes the key."""
        return partial(remove_member, pointer=self.pointer)

    def problem(
        self,
        rule: str,
        message: str,
        hint: str | None = None,
        *,
        answer: object = NOTHING,
        severity: Severity | None = None,
        fix: Fix | None = None,
        at_key: bool = False,
    ) -> Problem:
        """Say what is wrong with the value, or with the key itself; `answer`: the one value to write in its place."""
        where = self.config.locate_key(self.pointer) if at_key else self.config.locate(self.pointer)
        if answer is not NOTHING:
            hint, fix = f"write {json.dumps(answer)}", partial(replace_value, pointer=self.pointer, value=answer)
        edits = edits_of(self.config, fix)
        violation = Violation(where, message, hint, severity=severity, edits=edits)
        return Problem(rule=rule, violation=violation)
