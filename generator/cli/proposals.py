"""What a folder and its machine propose for a job spec: a model's config, launch files, `sinfo`, `nvidia-smi`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..draft.machines import ASSUMED_GBITS
from .machines_here import accelerator_called, cards_here, chosen, partitions_here

_SUFFIXES: Final = frozenset({".json", ".sh", ".sbatch", ".slurm", ".yaml", ".yml"})
_MOST_FILES: Final = 200
_MOST_BYTES: Final = 1_000_000
#: Keys that files propose beside what is asked.
_BESIDE: Final = (
    *("training.sequence_length", "training.global_batch", "training.precision", "training.optimizer"),
    *("training.learning_rate", "training.weight_decay", "training.gradient_clipping", "launch.time_limit"),
    *(f"launch.slurm.{key}" for key in ("partition", "account", "qos", "constraint", "container_image")),
    *(f"launch.slurm.{key}" for key in ("container_mounts", "gres_type", "gpu_request", "modules")),
    "launch.slurm.virtual_environment",
)


@dataclass(slots=True)
class Proposals:
    """Values by dotted path, and where each is from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, value: Any, source: str) -> None:
        """A value, where none was proposed before."""
        if value is not None and path not in self.values:
            self.values[path], self.sources[path] = value, source


def proposals(folder: Path) -> Proposals:
    """Everything that is proposed in a folder; what is wrong with its files is none of it."""
    found = Proposals()
    _from_files(found, folder)
    _from_model(found, folder)
    _from_slurm(found)
    cards = cards_here()
    if cards is not None:
        found.add("cluster", _node(*cards), "nvidia-smi")
        found.add("gpus", cards[1], "nvidia-smi")
        found.add("launch.target", "shell", "nvidia-smi")
    return found


def _from_model(found: Proposals, folder: Path) -> None:
    """The config.json of a model here, or in the one folder here that has one."""
    places = [folder / "config.json"] if (folder / "config.json").is_file() else sorted(folder.glob("*/config.json"))
    models = [path for path in places[:_MOST_FILES] if _is_model(path)]
    if len(models) == 1:
        name = str(models[0].relative_to(folder))
        found.add("model", name if "/" not in name else name.removesuffix("/config.json"), name)
        found.add("framework", "huggingface", name)


def _is_model(path: Path) -> bool:
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size < _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "model_type" in data


def _files(folder: Path) -> Iterator[Path]:
    names = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    yield from (path for path in names[:_MOST_FILES] if path.is_file() and path.name != "config.json")


def _from_files(found: Proposals, folder: Path) -> None:
    """What the first launch here says, or the first DeepSpeed config."""
    from ..draft import adopt, find_runs  # here, to save start-up time
    from ..programs.frameworks import FRAMEWORKS

    try:
        paths = list(_files(folder))
    except OSError:
        return
    runs = find_runs(paths, lambda: FRAMEWORKS)[1] if paths else ()
    for run in runs[:1]:
        draft, source = adopt(run).draft, Path(run.where.path).name
        asked = ("model", "cluster", "gpus", "nodes", "framework", "launch.target")
        for key in asked if run.launch is not None else ("framework",):
            if key not in ("gpus", "nodes") or not {"gpus", "nodes"} & set(found.values):
                found.add(key, draft.get(key), source)
        for key in _BESIDE:
            found.add(key, draft.get(key), source)


def _from_slurm(found: Proposals) -> None:
    partition = chosen(partitions_here())
    if partition is None:
        return
    source = f"sinfo, partition {partition.name}"
    found.add("launch.target", "slurm", source)
    found.add("launch.slurm.partition", partition.name, source)
    kind = accelerator_called(partition.kind) if partition.kind else None
    if kind is not None:
        found.add("cluster", _node(kind, partition.gpus), source)
    if "nodes" not in found.values:
        found.add("gpus", partition.gpus, source)


def _node(kind: str, gpus: int) -> dict[str, Any]:
    """A node of so many accelerators; between nodes, a rate that is to be corrected."""
    return {"accelerator": kind, "accelerators_per_node": gpus, "network_gbits_per_s_per_node": ASSUMED_GBITS}
