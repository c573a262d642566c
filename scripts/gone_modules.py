"""Write the modules that newer releases no longer have: `python scripts/gone_modules.py
transformers=FOLDER...`.

Each FOLDER holds installed releases of the program, in a folder named by its version.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

TABLE = Path(__file__).parents[1] / "generator" / "facts" / "gone_modules.json"


def gone(program: str, releases: Path) -> dict[str, str]:
    """The modules of a program that the newest release lacks, and the last release seen with
    each.
    """
    versions = sorted(
        releases.iterdir(), key=lambda folder: [int(part) for part in folder.name.split(".")]
    )
    last = {module: folder.name for folder in versions for module in _modules(folder, program)}
    # names the replaced
    package = (versions[-1] / program / "__init__.py").read_text(encoding="utf-8")
    kept = {
        module: version
        for module, version in last.items()
        if version != versions[-1].name and _is_used(module)
    }
    kept = {
        module: version
        for module, version in kept.items()
        if module.rpartition(".")[2] not in package
    }
    return {m: v for m, v in sorted(kept.items()) if kept.get(m.rpartition(".")[0]) != v}


def _is_used(module: str) -> bool:
    """Return whether programs would import it: no model of many, no command or converter."""
    return not any(part in module for part in (".models.", ".commands.", ".cli.", ".convert_"))


def _modules(release: Path, program: str) -> set[str]:
    files = (
        path.relative_to(release).with_suffix("") for path in (release / program).rglob("*.py")
    )
    return {".".join(path.parts).removesuffix(".__init__") for path in files}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM=FOLDER")
    given = dict(one.split("=", 1) for one in parser.parse_args().programs)
    table = {program: gone(program, Path(folder)) for program, folder in given.items()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
