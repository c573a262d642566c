"""Write the options that front ends add to an engine's own, from checkouts of their sources.

    python scripts/front_end_options.py slime=DIR,DIR "ms-swift for Megatron=DIR" verl=CONFIGS

    python scripts/front_end_options.py "TRL dpo=FILE,FILE"  # what one of its commands has

Options are the names that `add_argument` is given, and the fields of dataclasses of arguments; of a
field that is true by default, transformers' parser makes `--no_NAME` too, and Typer of every
switch. Of several folders, such
as a fork's beside its origin's, all are taken. Of a folder of Hydra's composed configs, whose
names end in `trainer.yaml`, they are the keys with dots.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TARGET = Path(__file__).parent.parent / "generator/programs/launching/front_end_options.json"
_OF_ARGUMENTS = ("Arguments", "Mixin", "Config", "Args", "Parameters")


def options_in(folder: Path) -> Iterator[str]:
    """The names of options in the Python below a folder, with their dashes."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                for argument in node.args:
                    value = getattr(argument, "value", None)
                    if isinstance(value, str) and value.startswith("--"):
                        yield value
            elif isinstance(node, ast.ClassDef) and node.name.endswith(_OF_ARGUMENTS):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        yield f"--{field.target.id}"
                        is_switch = getattr(field.annotation, "id", "") == "bool"
                        if is_switch or getattr(field.value, "value", None) is True:
                            yield f"--no_{field.target.id}"


def keys_in(folder: Path) -> Iterator[str]:
    """The dotted keys of the composed configs below a folder."""
    for path in sorted(folder.rglob("*trainer.yaml")) if folder.is_dir() else ():
        yield from _dotted(yaml.safe_load(path.read_text(encoding="utf-8")), "")


def _dotted(mapping: dict[str, Any], before: str) -> Iterator[str]:
    for name, value in mapping.items():
        if before:
            yield f"{before}{name}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{before}{name}.")


def main(arguments: list[str]) -> None:
    """Write the table of the front ends named, each with its folders."""
    table = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    for argument in arguments:
        name, _, folders = argument.partition("=")
        paths = [Path(folder) for folder in folders.split(",")]
        found = {one for path in paths for one in (*options_in(path), *keys_in(path))}
        table[name] = sorted(found)
    TARGET.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
