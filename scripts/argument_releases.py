"""Write when TrainingArguments got and lost each argument:
`python scripts/argument_releases.py FOLDER`.

FOLDER holds transformers' `training_args.py` of each minor release, named by it: `4.57.py`. What to
write instead of an argument that is gone is kept from the table as it is.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "generator" / "programs" / "trainer"
TABLE, KNOWN = FOLDER / "argument_releases.json", FOLDER / "training_arguments.json"
_FILE = "src/transformers/training_args.py"


def table(folder: Path) -> dict[str, Any]:
    """The table: `gone` is the first release without an argument, `since` the first with one."""
    files = sorted(folder.glob("*.py"), key=lambda file: [int(x) for x in file.stem.split(".")])
    releases = [file.stem for file in files]
    arguments = [_arguments(file) for file in files]
    before = json.loads(TABLE.read_text(encoding="utf-8"))["gone"]
    known = json.loads(KNOWN.read_text(encoding="utf-8"))["arguments"]

    names = sorted(set().union(*arguments))
    having = {name: [name in each for each in arguments] for name in names}
    gone = {
        name: {
            "release": releases[len(has) - has[::-1].index(True)],
            "instead": before[name]["instead"],
        }
        for name, has in having.items()
        if name in before and not has[-1]
    }
    since = {
        name: releases[has.index(True)]
        for name, has in having.items()
        if name in known and not has[0]
    }
    source = f"{_FILE} of every minor release of transformers from {releases[0]} to {releases[-1]}"
    return {"source": source, "gone": gone, "since": since}


def _arguments(file: Path) -> frozenset[str]:
    """The fields of the class TrainingArguments in a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == "TrainingArguments")
    fields = (node.target for node in body if isinstance(node, ast.AnnAssign))
    return frozenset(target.id for target in fields if isinstance(target, ast.Name))


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    written = table(parser.parse_args().folder)
    lines = [f'  "source": {json.dumps(written["source"])},']
    for part, after in (("gone", ","), ("since", "")):
        rows = [f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in written[part].items()]
        lines += [f'  "{part}": {{', ",\n".join(rows), f"  }}{after}"]
    TABLE.write_text("\n".join(["{", *lines, "}\n"]), encoding="utf-8")


if __name__ == "__main__":
    _main()
