"""What this machine says of GPUs and of Slurm: `nvidia-smi` and `sinfo`, where they are and answer in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..dataclass import dataclass

_LIMIT_S: Final = 5
_CLOSE: Final = 0.1  #: of the memory that a card of the catalog has
_GRES: Final = re.compile(r"gpu(?::([\w.-]+))?:(\d+)")
_MOST_LINES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition of Slurm's whose nodes have GPUs."""

    name: str
    nodes: int
    kind: str | None  #: of its GPUs, as Slurm calls them
    gpus: int  #: of a node
    is_default: bool = False


def said_by(*words: str) -> str:
    """What a program prints; nothing where it isn't there, fails, or takes too long."""
    import subprocess  # here, to save start-up time

    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def cards_here() -> tuple[str, int] | None:
    """The catalog's name of this machine's GPUs and how many they are; None where it has none, or of several kinds."""
    return cards_of(said_by("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"))


def cards_of(text: str) -> tuple[str, int] | None:
    """The same of what nvidia-smi prints: a line `NAME, MIB` for each GPU."""
    rows = [line.rpartition(",") for line in text.splitlines()[:_MOST_LINES] if line.strip()]
    found = {accelerator_called(name, mib) for name, _, mib in rows}
    kind = found.pop() if len(found) == 1 else None
    return (kind, len(rows)) if kind else None


def accelerator_called(name: str, mib: str = "") -> str | None:
    """The accelerator that a driver calls so: its family's letters and digits, its memory, SXM or PCIe."""
    from ..catalog import find_accelerator, load_catalog  # here, to save start-up time
    from ..units import MIB

    words = re.findall(r"[a-z0-9.]+", name.lower())
    known = find_accelerator("-".join(words))
    if known is not None and not mib:
        return known.name
    whole = {key: one for key, one in load_catalog().accelerators.items() if not one.is_slice}
    family = {key: one for key, one in whole.items() if key.split("-")[0] in words}
    if mib.strip().isdigit():
        bytes_ = int(mib) * MIB
        family = {key: one for key, one in family.items() if abs(one.memory_bytes / bytes_ - 1) < _CLOSE}
    pcie = "pcie" in words
    return next(iter(sorted(family, key=lambda key: (("pcie" in key) is not pcie, len(key), key))), None)


def partitions_here() -> tuple[Partition, ...]:
    """Slurm's partitions that have GPUs."""
    return tuple(partitions_of(said_by("sinfo", "--noheader", "--format=%P|%D|%G")))


def partitions_of(text: str) -> Iterator[Partition]:
    """The same of what sinfo prints: a line `PARTITION|NODES|GRES` for each kind of node."""
    for line in text.splitlines()[:_MOST_LINES]:
        name, _, rest = line.strip().partition("|")
        nodes, _, gres = rest.partition("|")
        found = _GRES.search(gres)
        if found and nodes.isdigit():
            is_default = name.endswith("*")
            yield Partition(
                name=name.rstrip("*"), nodes=int(nodes), kind=found[1], gpus=int(found[2]), is_default=is_default
            )


def chosen(partitions: Sequence[Partition]) -> Partition | None:
    """The partition to propose: the default one, else the one of most nodes."""
    return max(partitions, key=lambda one: (one.is_default, one.nodes), default=None)
