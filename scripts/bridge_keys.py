"""Write the keys of Megatron-Bridge's config: `python scripts/bridge_keys.py BRIDGE CORE [...]`.

BRIDGE is the source of NVIDIA-NeMo/Megatron-Bridge, CORE of NVIDIA/Megatron-LM at the commit that
it pins; further pairs add keys of other releases. Classes are read, nothing is imported. Of what a
recipe may choose among, such as models and datasets, a section has the fields of every class.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent.parent / "generator/programs/megatron_bridge/bridge_keys.json"
_KINDS: Final = {"int": "int", "float": "float", "bool": "bool"}
_LITERAL: Final = re.compile(r"Literal\[([^\]]*)\]")


class Tree:
    """The classes of a source, by name; of a name that several have, all."""

    def __init__(self, *folders: Path) -> None:
        self._classes: dict[str, list[tuple[ast.ClassDef, dict[str, str]]]] = {}
        for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            imported = (node for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
            aliases = {
                alias.asname: alias.name
                for node in imported
                for alias in node.names
                if alias.asname
            }
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    self._classes.setdefault(node.name, []).append((node, aliases))

    def named(self, pattern: str) -> Iterator[str]:
        """The names of classes that match a pattern."""
        return (name for name in self._classes if re.fullmatch(pattern, name))

    def fields(self, name: str, seen: frozenset[str] = frozenset()) -> dict[str, str]:
        """The annotated fields of a class and of those that it inherits from."""
        found: dict[str, str] = {}
        for node, aliases in self._classes.get(name, ()):
            for base in node.bases:
                base_name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
                original = aliases.get(base_name, base_name)
                # one of the same name, which it extends, is among the classes already
                if original not in seen | {name}:
                    found |= self.fields(original, seen | {name})
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    found[item.target.id] = kind_of(ast.unparse(item.annotation))
        return found


def kind_of(annotation: str) -> str:
    """int, float or bool; `text|text` of a choice; empty of any other."""
    text = annotation.strip("'\"").replace(" ", "")
    text = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", text).replace("|None", "")
    if (choice := _LITERAL.fullmatch(text)) and "'" in choice[1] and "None" not in choice[1]:
        return "|".join(word.strip("'\"") for word in choice[1].split(","))
    return _KINDS.get(text, "")


#: Patterns of the classes that a section may be of.
SECTIONS: Final = {
    "model": r".*(?:Provider|ModelConfig|TransformerConfig)",
    "train": "TrainingConfig",
    "validation": "ValidationConfig",
    "optimizer": "OptimizerConfig",
    "scheduler": "SchedulerConfig",
    "ddp": "DistributedDataParallelConfig",
    "dataset": r".*(?:DatasetConfig|DatasetProvider|DataloaderConfig)",
    "logger": "LoggerConfig",
    "tokenizer": "TokenizerConfig",
    "checkpoint": "CheckpointConfig",
    "dist": "DistributedInitConfig",
    "rng": "RNGConfig",
    "rerun_state_machine": "RerunStateMachineConfig",
    "mixed_precision": "MixedPrecisionConfig",
    "comm_overlap": "CommOverlapConfig",
    "peft": r"(?:LoRA|DoRA|CanonicalLoRA|PEFT)",
    "profiling": "ProfilingConfig",
}


def keys(bridge: Path, core: Path) -> dict[str, dict[str, str]]:
    """The fields of each section, with their kinds; of fields of unlike kinds none is said."""
    tree, found = Tree(bridge / "src", core / "megatron"), dict[str, dict[str, str]]()
    for section, pattern in SECTIONS.items():
        fields: dict[str, str] = {}
        for name in tree.named(pattern):
            for field, kind in tree.fields(name).items():
                fields[field] = kind if fields.get(field, kind) == kind else ""
        found[section] = fields
    found["plain model"] = tree.fields("GPTModelProvider")  # of the recipe without a model
    container = tree.fields("ConfigContainer")
    found[""] = {name: "" for name in container if not name.startswith("_")}
    return found


def main() -> None:
    """Write the table of all the trees that are named."""
    paths = list(map(Path, sys.argv[1:]))
    merged: dict[str, dict[str, str]] = {}
    for bridge, core in zip(paths[::2], paths[1::2], strict=True):
        for section, fields in keys(bridge, core).items():
            known = merged.setdefault(section, {})
            for field, kind in fields.items():
                known[field] = kind if known.get(field, kind) == kind else ""
    ordered = {section: dict(sorted(fields.items())) for section, fields in sorted(merged.items())}
    OUT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
