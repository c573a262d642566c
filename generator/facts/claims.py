"""Claims of documents on the number of GPUs, nodes and processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..dataclass import dataclass
from ..findings import Location
from ..job.wording import counted

Quantity = Literal["GPUs", "nodes", "GPUs per node", "processes"]


@dataclass(frozen=True, slots=True)
class Claim:
    """How many there are of something, by one document."""

    quantity: Quantity
    value: int
    where: Location
    text: str  #: what is written, as in `#SBATCH --nodes 16 × --gres gpu:8`


def claims_of_nodes(nodes: int | None, gpus: int | None, nodes_at: Location, gpus_at: Location) -> Iterator[Claim]:
    """The claims of a job for `nodes` nodes with `gpus` GPUs each; None: unknown."""
    if nodes:
        yield Claim("nodes", nodes, nodes_at, counted(nodes, "node"))
    if gpus:
        yield Claim("GPUs per node", gpus, gpus_at, f"{counted(gpus, 'GPU')} a node")
        if nodes:
            yield Claim("GPUs", nodes * gpus, gpus_at, f"{counted(nodes, 'node')} × {counted(gpus, 'GPU')}")
