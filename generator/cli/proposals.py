"""Proposals for a job spec from a folder and its machine: models, scripts, sinfo, nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..catalog import find_accelerator, load_catalog
from ..dataclass import dataclass
from ..job.resolve_names import described_node
from ..numerals import is_whole, read_whole, whole
from ..patterns import lazy_pattern
from ..text.around import is_readable, matching
from ..text.text import UnusableJson, read_json
from ..units import MIB

_SUFFIXES: Final = frozenset({".json", ".sh", ".sbatch", ".slurm", ".yaml", ".yml"})
_MOST_FILES: Final = 200  # of a folder that are looked at: a question is answered at once
#: Keys for which files propose values, beside those that are asked for.
_NOT_ASKED: Final = (
    "training.sequence_length",
    "training.global_batch",
    "training.precision",
    "training.optimizer",
    "training.learning_rate",
    "training.weight_decay",
    "training.gradient_clipping",
    "launch.time_limit",
    "launch.slurm.partition",
    "launch.slurm.account",
    "launch.slurm.qos",
    "launch.slurm.constraint",
    "launch.slurm.container_image",
    "launch.slurm.container_mounts",
    "launch.slurm.gres_type",
    "launch.slurm.gpu_request",
    "launch.slurm.modules",
    "launch.slurm.virtual_environment",
)
#: How far from the memory that a driver reports a card's memory may be: the driver keeps a part.
_MEMORY_DIFFERENCE: Final = 0.1
#: GPUs in sinfo's column GRES: `gpu:8`, `gpu:a100:4`.
_GRES: Final = lazy_pattern(r"gpu(?::([\w.-]+))?:([0-9]+)")
_MOST_LINES: Final = 1000  # of what a program prints of the machine


@dataclass(slots=True)
class Proposals:
    """Values by dotted path, and where each is from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, value: Any, source: str) -> None:
        """Propose a value for a key that has none yet."""
        if value is not None and path not in self.values:
            self.values[path], self.sources[path] = value, source


def proposals(folder: Path) -> Proposals:
    """Everything that is proposed in a folder. Files that can't be read propose nothing."""
    proposed = Proposals()
    _from_files(proposed, folder)
    places = [*matching("config.json", folder, folder)] or matching("*/config.json", folder, folder)
    models = [path for path in islice(places, _MOST_FILES) if _is_model(path)]
    if len(models) == 1:
        name = str(models[0].relative_to(folder))
        proposed.add("model", name.removesuffix("/config.json"), name)
        proposed.add("framework", "huggingface", name)
    _from_slurm(proposed)
    cards = cards_of(
        said_by("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    )
    if cards is not None:
        proposed.add("cluster", described_node(*cards), "nvidia-smi")
        proposed.add("gpus", cards[1], "nvidia-smi")
        proposed.add("launch.target", "shell", "nvidia-smi")
    return proposed


def _is_model(path: Path) -> bool:
    try:
        data = read_json(path)
    except UnusableJson:
        return False
    return isinstance(data, dict) and "model_type" in data


def _from_files(proposed: Proposals, folder: Path) -> None:
    """Propose what the first launch here says, or the first DeepSpeed config."""
    from ..draft import draft_run, find_runs  # here, to save start-up time

    try:
        names = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    except OSError:
        return
    paths = [
        path
        for path in names[:_MOST_FILES]
        if is_readable(path, folder) and path.name != "config.json"
    ]
    runs = find_runs(paths)[1] if paths else ()
    if not runs:
        return
    run = runs[0]
    draft, source = draft_run(run), Path(run.where.path).name
    asked: tuple[str, ...] = ("framework",)  # all that a config alone tells
    if run.launch is not None:
        asked = ("model", "cluster", "gpus", "nodes", "framework", "launch.target")
    for key in asked:
        is_count = key in ("gpus", "nodes")
        has_count = "gpus" in proposed.values or "nodes" in proposed.values
        if not (is_count and has_count):  # one of them is enough
            proposed.add(key, draft.get(key), source)
    for key in _NOT_ASKED:
        proposed.add(key, draft.get(key), source)


def _from_slurm(proposed: Proposals) -> None:
    """Propose the default partition of Slurm, else the largest."""
    partitions = partitions_of(said_by("sinfo", "--noheader", "--format=%P|%D|%G"))
    partition = max(partitions, key=lambda each: (each.is_default, each.nodes), default=None)
    if partition is None:
        return
    source = f"sinfo, partition {partition.name}"
    proposed.add("launch.target", "slurm", source)
    proposed.add("launch.slurm.partition", partition.name, source)
    kind = accelerator_called(partition.kind) if partition.kind else None
    if kind is not None:
        proposed.add("cluster", described_node(kind, partition.gpus), source)
    if "nodes" not in proposed.values:
        proposed.add("gpus", partition.gpus, source)


class Partition(NamedTuple):
    """A partition of Slurm's whose nodes have GPUs."""

    is_default: bool
    nodes: int
    name: str
    kind: str | None  #: of its GPUs, as Slurm calls them
    gpus: int  #: of a node


def said_by(*words: str) -> str:
    """Return what a program prints; nothing where it isn't there, fails, or takes too long."""
    import subprocess  # here, to save start-up time

    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def cards_of(text: str) -> tuple[str, int] | None:
    """The GPUs that nvidia-smi lists, one `NAME, MIB` a line: their catalog name and number."""
    rows = [line.rpartition(",") for line in text.splitlines()[:_MOST_LINES] if line.strip()]
    names = {accelerator_called(name, mib) for name, _, mib in rows}
    kind = names.pop() if len(names) == 1 else None
    return (kind, len(rows)) if kind else None


def accelerator_called(name: str, mib: str = "") -> str | None:
    """The catalog's name of the accelerator that a driver or Slurm calls so.

    It is found by its family, its memory, and whether it is a PCIe card.
    """
    words = re.findall(r"[a-z0-9.]+", name.lower())
    if not mib:
        accelerator = find_accelerator("-".join(words))
        if accelerator is not None:
            return accelerator.name

    cards = [card for card in load_catalog().accelerators.items() if not card[1].is_slice]
    family = {key: card for key, card in cards if key.split("-")[0] in words}
    size = read_whole(mib.strip())
    if size is not None:
        family = {
            key: card
            for key, card in family.items()
            if abs(card.memory_bytes / (size * MIB) - 1) < _MEMORY_DIFFERENCE
        }
    is_pcie = "pcie" in words
    # Those that agree on PCIe come first; of these, the one with the shortest name.
    ranked = sorted(family, key=lambda key: (("pcie" in key) is not is_pcie, len(key), key))
    return ranked[0] if ranked else None


def partitions_of(text: str) -> Iterator[Partition]:
    """The partitions with GPUs that sinfo lists, one `PARTITION|NODES|GRES` a line."""
    for line in text.splitlines()[:_MOST_LINES]:
        name, _, rest = line.strip().partition("|")
        nodes, _, gres = rest.partition("|")
        match = _GRES.search(gres)
        if match and is_whole(nodes):
            yield Partition(
                name.endswith("*"), whole(nodes), name.rstrip("*"), match[1], whole(match[2])
            )
