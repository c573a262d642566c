"""Write the fields of TRL's classes of arguments: `python scripts/trl_classes.py FOLDER`.

FOLDER holds the unpacked wheels of releases of TRL in folders that are named by them: `0.15.2/trl`.
The fields of a class are those of all releases together, with its bases' in TRL. Those that it has
by transformers' TrainingArguments are left out, and `trainer` says that it has them.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "generator" / "programs" / "trainer"
TABLE, KNOWN = FOLDER / "trl_classes.json", FOLDER / "training_arguments.json"
_OF_TRAINER = "TrainingArguments"


def table(folder: Path) -> dict[str, Any]:
    """The classes of all releases in a folder."""
    releases = sorted(
        (each.name for each in folder.iterdir() if (each / "trl").is_dir()),
        key=lambda name: [int(part) for part in name.split(".")],
    )
    known = set(json.loads(KNOWN.read_text(encoding="utf-8"))["arguments"])
    fields = dict[str, set[str]]()
    trained = set[str]()
    for release in releases:
        classes = _classes(folder / release / "trl")
        for name in classes:
            found = _fields(name, classes)
            if found and name.endswith(("Config", "Arguments")):
                fields.setdefault(name, set()).update(found - {_OF_TRAINER} - known)
                trained |= {name} if _OF_TRAINER in found else set()
    return {
        "source": f"the classes of {len(releases)} releases of trl from {releases[0]} to "
        f"{releases[-1]}",
        "classes": {
            name: {"trainer": name in trained, "fields": sorted(fields[name])}
            for name in sorted(fields)
            if not name.startswith("_")
        },
    }


def _classes(package: Path) -> dict[str, list[ast.ClassDef]]:
    """The classes of a package by name, which several modules may have."""
    classes = dict[str, list[ast.ClassDef]]()
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    return classes


def _fields(name: str, classes: dict[str, list[ast.ClassDef]], steps: int = 8) -> set[str] | None:
    """The fields of all classes of a name; with `TrainingArguments` where one has that as a base.

    None where a base isn't known.
    """
    if name == _OF_TRAINER:
        return {_OF_TRAINER}
    if name not in classes or not steps:
        return None
    fields = set[str]()
    for node in classes[name]:
        annotated = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
        fields |= {target.id for target in annotated if isinstance(target, ast.Name)}
        for base in node.bases:
            # `KTOConfig(_KTOConfig)` of a module has another module's class by that name.
            written = ast.unparse(base).rpartition(".")[2]
            origin = written if written in classes else written.lstrip("_")
            of_base = set() if origin == name else _fields(origin, classes, steps - 1)
            if of_base is None:
                return None
            fields |= of_base
    return fields


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    written = table(parser.parse_args().folder)
    TABLE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
