"""What kind of document a file is: by its name where that is plain, else by its keys and lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePath
from typing import Final, get_args

from .document import Kind

_OTHERS: Final = "other programs' files"

_SCRIPTS: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job"})
_MAPPINGS: Final = frozenset({".json", ".hjson", ".yaml", ".yml"})
_DEEPSPEED_NAME: Final = re.compile(r"(?:^|[^a-z])(?:ds|deepspeed|zero[-_]?\d?|z[0-3])(?:[^a-z]|$)")
_HOST_LINE: Final = re.compile(r"\s*\S+\s+slots\s*=", re.IGNORECASE)
_TORN_YAML: Final = re.compile(r"^([A-Za-z_$][\w$]*)\s*:", re.MULTILINE)
_LAUNCHER: Final = re.compile(r"\b(?:srun|torchrun|deepspeed|accelerate launch|mpirun)\b")
_MEGATRON_OPTIONS: Final = ("--num-layers", "--hidden-size", "--tensor-model-parallel-size", "--micro-batch-size")
_OPTION_LINE: Final = re.compile(r"\s*--[a-z][\w-]*")


@lru_cache(maxsize=1)
def _signs() -> Mapping[str, frozenset[str]]:
    """Top-level keys by kind, and those of other files in the folder of a job.

    Keys that are `plain` signs of a kind count three times; one of `AzureML job, weak` alone may be of another program.
    """
    text = files(__package__).joinpath("kinds.json").read_text(encoding="utf-8")
    return {kind: frozenset(keys) for kind, keys in json.loads(text).items()}


def is_candidate(path: PurePath) -> bool:
    """Whether a file in a folder may be a document, by its name."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name.startswith("."):
        return name == ".deepspeed_env"
    return suffix in _SCRIPTS | _MAPPINGS or name == "arguments.txt" or name.startswith("hostfile")


def kind_of(path: PurePath, content: str, keys: frozenset[str]) -> Kind | None:
    """The kind of the document at `path`; `keys` are its top-level keys, as far as they could be read."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name == ".deepspeed_env":
        return "environment file"
    if name.startswith("hostfile") and suffix not in _MAPPINGS | _SCRIPTS:
        return "hostfile"
    if suffix in _SCRIPTS or (content.startswith("#!") and suffix not in _MAPPINGS):
        return "launch script"
    if suffix not in _MAPPINGS:
        return _kind_of_text(content, keys)
    named = suffix == ".hjson" or (suffix == ".json" and _DEEPSPEED_NAME.search(name))
    ours = named and not keys & _signs()[_OTHERS]
    return _kind_by_keys(keys) or ("DeepSpeed config" if ours else None)


def _kind_by_keys(keys: frozenset[str]) -> Kind | None:
    """The kind with the most of its signs among `keys`; one of another program's file outweighs them."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    signs = _signs()
    against = 10 * len(keys & signs[_OTHERS])
    none = frozenset[str]()
    scores = {
        kind: len(keys & signs.get(kind, none)) + 2 * len(keys & signs.get(f"{kind}, plain", none)) - against
        for kind in kinds
    }
    best = max(kinds, key=lambda kind: scores[kind])
    if best == "AzureML job" and not keys & {"command", "$schema"} and len(keys & signs["AzureML job, weak"]) < 2:
        return None  # services, inputs and outputs are other programs' keys too
    if best == "job spec" and scores[best] < 2:
        return None  # many a file has a model
    return best if scores[best] > 0 else None


def _kind_of_text(content: str, keys: frozenset[str]) -> Kind | None:
    """The kind of a file whose name has none."""
    lines = [line for line in content.splitlines()[:200] if line.strip() and not line.lstrip().startswith("#")]
    if lines and all(_OPTION_LINE.match(line) for line in lines[:5]):
        return "Megatron arguments" if any(line.lstrip().startswith(_MEGATRON_OPTIONS) for line in lines) else None
    if "#SBATCH" in content or _LAUNCHER.search(content):
        return "launch script"
    if lines and _HOST_LINE.match(lines[0]):
        return "hostfile"
    return _kind_by_keys(keys)


def torn_keys(content: str) -> frozenset[str]:
    """Top-level keys of YAML that can't be parsed, so that its kind can still be known."""
    return frozenset(_TORN_YAML.findall(content[:100_000]))
