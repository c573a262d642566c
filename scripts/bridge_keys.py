"""Write the keys of Megatron-Bridge's config, and the names of its recipes, by release:
`python scripts/bridge_keys.py RELEASE=BRIDGE:CORE[:CORE...] [...]`, oldest first.

RELEASE is `0.6`, BRIDGE the source of NVIDIA-NeMo/Megatron-Bridge or its unpacked wheel, CORE of
NVIDIA/Megatron-LM at the commit that it pins, and of later ones that may be installed with it: a
key that none of them has is surely none of the release's. Several sources of a release are given
one by one. Classes are read, nothing is imported. Of what a recipe may choose among, such as
models and datasets, a section has the fields of every class. The last release may be one that is
being developed. (0.2 to 0.6 were 0.2.2, 0.3.1, 0.4.2, 0.5.1, 0.6.0 and 0.6.2, with Megatron-Core
0.15.3, 0.16.0, 0.17.1, 0.18.0, 0.19.0 and 0.19.2; 0.7 was main at 067f987df, with
Megatron-LM at 2a75ac12 and d98e8a64.)
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent.parent / "generator/programs/megatron_bridge/bridge_keys.json"
NAMES: Final = OUT.with_name("recipe_names.json")
_RECIPE: Final = re.compile(
    r"^(?:def[ ])?([a-z]\w*_config\w*)(?=\(|\s*=)|^[ ]+\"([a-z]\w*_config)\"", re.MULTILINE
)
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


def recipe_names(bridge: Path) -> set[str]:
    """The names of recipes: functions, and what a module gives such a name."""
    folders = (bridge / "src/megatron/bridge" / name for name in ("recipes", "perf_recipes"))
    texts = (path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    return {a or b for text in texts for a, b in _RECIPE.findall(text)}


def bounds(there: Sequence[str], releases: Sequence[str]) -> str:
    """`0.4-0.5` of what is in some releases in a row, `0.6-` of what is still there; else empty."""
    first, last = releases.index(there[0]), releases.index(there[-1])
    if last - first + 1 != len(there):
        return ""  # it came back
    start = there[0] if first else ""
    end = there[-1] if last + 1 < len(releases) else ""
    return f"{start}-{end}" if start or end else ""


def main() -> None:
    """Write the tables of all the trees that are named."""
    merged: dict[str, dict[str, str]] = {}
    seen: dict[str, dict[str, None]] = {}  # releases by key
    named: dict[str, dict[str, None]] = {}  # and by recipe
    releases: dict[str, None] = {}
    for argument in sys.argv[1:]:
        release, _, paths = argument.partition("=")
        releases[release] = None
        bridge, *cores = map(Path, paths.split(":"))
        for name in recipe_names(bridge):
            named.setdefault(name, {})[release] = None
        for core in cores:
            for section, fields in keys(bridge, core).items():
                known = merged.setdefault(section, {})
                for field, kind in fields.items():
                    known[field] = kind if known.get(field, kind) == kind else ""
                    seen.setdefault(f"{section}.{field}", {})[release] = None
    ordered = {section: dict(sorted(fields.items())) for section, fields in sorted(merged.items())}
    order = list(releases)
    of_keys = {key: bounds(list(there), order) for key, there in sorted(seen.items())}
    ordered["releases"] = {key: bound for key, bound in of_keys.items() if bound}
    OUT.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    by_bounds: dict[str, list[str]] = {}
    for name, there in sorted(named.items()):
        by_bounds.setdefault(bounds(list(there), order), []).append(name)
    NAMES.write_text(json.dumps(by_bounds, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
