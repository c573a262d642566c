"""Numbers of GPUs, nodes and processes, as documents have them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Literal

from ..dataclass import dataclass
from ..findings import Location
from ..text.wording import counted


class Trust(IntEnum):
    """What has a number; of several that differ the first counts."""

    DIRECTIVES = 0  #: of a script
    JOB = 1  #: of a service or a controller
    HOSTS = 2  #: a file of hosts
    SCRIPT = 3  #: a launch line of a script
    COMMAND = 4  #: a launch line that a service runs
    CONFIG = 5


#: In order: the first that is known is how many GPUs there are.
Quantity = Literal["GPUs", "processes", "GPUs per node", "nodes"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of GPUs, nodes or processes, as one document has it."""

    quantity: Quantity
    value: int
    where: Location
    text: str  #: what is written, as in `#SBATCH --nodes 16 × --gres gpu:8`
    trust: Trust = Trust.JOB

    @property
    def placed(self) -> str:
        """What is written, with its place where it is in a file."""
        path, line = self.where.path, self.where.line
        place = path if line is None else f"{path}:{line}"
        return self.text if self.where.flag else f"{self.text} ({place})"


def claims_of_nodes(
    nodes: int | None, gpus: int | None, nodes_at: Location, gpus_at: Location
) -> Iterator[Claim]:
    """The claims of a job for `nodes` nodes with `gpus` GPUs each; None: unknown."""
    if nodes:
        yield Claim("nodes", nodes, nodes_at, counted(nodes, "node"))
    if gpus:
        yield Claim("GPUs per node", gpus, gpus_at, f"{counted(gpus, 'GPU')} a node")
        if nodes:
            product = f"{counted(nodes, 'node')} × {counted(gpus, 'GPU')}"
            yield Claim("GPUs", nodes * gpus, gpus_at, product)
