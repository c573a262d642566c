"""A task of SkyPilot's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...facts.document import Claim, Kind, claims_of_nodes
from ..launching.script import CommandDocument

_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,11}\s*")  # that Python's int() reads


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotTask(CommandDocument):
    """A task of SkyPilot's; the command is its `run`."""

    document_kind: ClassVar[Kind] = "SkyPilot task"
    in_image: ClassVar[bool] = True

    @property
    def nodes(self) -> int | None:
        """The nodes, one where nothing is written; None where it is no number."""
        return self.integer("num_nodes") if self.value("num_nodes") is not None else 1

    @property
    def gpus(self) -> int | None:
        """The accelerators of each node; None where there is a choice of them."""
        written = self.value("resources/accelerators")
        if isinstance(written, dict) and len(written) == 1:
            (count,) = written.values()
            return count if isinstance(count, int) else 1 if count is None else None
        name, _, number = written.partition(":") if isinstance(written, str) else ("", "", "")
        if not name or {"{", ","} & set(name):
            return None
        return int(number) if _INTEGER.fullmatch(number) else None if number else 1

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the task asks for."""
        return claims_of_nodes(self.nodes, self.gpus, self.locate("num_nodes"), self.locate("resources/accelerators"))
