"""Writes what each release of DeepSpeed knows of its config: `python scripts/deepspeed_keys.py
0.16.9 0.19.8`.

Every release is installed by pip into its own folder and asked in its own process, so torch,
pydantic, hjson and the rest come from the environment that this runs in. A release whose table is
that of the release before gets no file: `dsgen.programs.deepspeed.schema` takes the nearest version
below.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent
TABLES = SCRIPTS.parent / "generator" / "programs" / "deepspeed" / "deepspeed_keys"
HEADER = ("deepspeed", "source")  #: what differs between two releases that know the same keys


def main() -> None:
    """Write the tables of the versions asked for, oldest first."""
    options = _options()
    options.output.mkdir(parents=True, exist_ok=True)
    for version in sorted(set(options.versions), key=numbers):
        folder = None if options.installed else install(version, options.cache)
        table = read(version, folder)
        before = _before(version, options.output)
        file = options.output / f"{version}.json"
        if before is not None and _body(before) == _body(table):
            file.unlink(missing_ok=True)
            print(f"{version}: as {before['deepspeed']}")
        else:
            file.write_text(text(table), encoding="utf-8")
            print(f"{version}: {file}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "dsgen-deepspeed",
        help="pip's targets",
    )
    parser.add_argument("--output", type=Path, default=TABLES)
    parser.add_argument(
        "--installed", action="store_true", help="ask the environment's own DeepSpeed; one VERSION"
    )
    return parser.parse_args()


def numbers(version: str) -> tuple[int, ...]:
    """Version as numbers, to compare."""
    return tuple(int(part) for part in version.split("."))


def install(version: str, cache: Path) -> Path:
    """The folder that holds this release and nothing else; pip fills it the first time."""
    folder = cache / version
    if not folder.exists():
        partial = cache / f"partial-{version}"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
        ]
        subprocess.run([*pip, "--target", str(partial), f"deepspeed=={version}"], check=True)
        partial.rename(folder)
    return folder


def read(version: str, folder: Path | None) -> dict[str, Any]:
    """The table of the release in `folder`, or of the environment's own."""
    paths = [str(SCRIPTS)] if folder is None else [str(folder), str(SCRIPTS)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    reader = [sys.executable, "-W", "ignore", str(SCRIPTS / "deepspeed_reader.py"), version]
    done = subprocess.run(reader, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"deepspeed {version} can't be read:\n{done.stderr}")
    # Importing DeepSpeed may print; the table is the last line.
    table: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return table


def text(table: dict[str, Any]) -> str:
    """The file's text: sorted, a key of a section per line."""
    lines = [f"{_quoted(name)}: {_quoted(table[name])}," for name in (*HEADER, "pydantic")]
    for part in ("optimizers", "schedulers", "removed"):
        lines.append(f"{_quoted(part)}: {_block(table[part])},")
    sections = [_section(path, table["sections"][path]) for path in sorted(table["sections"])]
    lines.append('"sections": {\n' + ",\n".join(sections) + "\n}")
    return "{\n" + "\n".join(lines) + "\n}\n"


def _block(entries: dict[str, Any]) -> str:
    return (
        "{\n"
        + ",\n".join(f"  {_quoted(name)}: {_quoted(entries[name])}" for name in sorted(entries))
        + "\n}"
    )


def _section(path: str, section: dict[str, Any]) -> str:
    facts = "".join(
        f", {_quoted(name)}: {_quoted(section[name])}"
        for name in ("extra", "checks")
        if name in section
    )
    keys = ",\n".join(
        f"    {_quoted(key)}: {_quoted(section['keys'][key])}" for key in sorted(section["keys"])
    )
    return (
        f'  {_quoted(path)}: {{"kind": {_quoted(section["kind"])}{facts}, '
        f'"keys": {{\n{keys}\n  }}}}'
    )


def _quoted(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _before(version: str, folder: Path) -> dict[str, Any] | None:
    """The nearest table below; a table is only left out within a minor version, so that each has
    its own.
    """
    this = numbers(version)
    older = [
        known for known in map(numbers, _stems(folder)) if known[:2] == this[:2] and known < this
    ]
    if not older:
        return None
    table: dict[str, Any] = json.loads(
        (folder / f"{'.'.join(map(str, max(older)))}.json").read_text(encoding="utf-8")
    )
    return table


def _stems(folder: Path) -> list[str]:
    return [file.stem for file in folder.glob("*.json")]


def _body(table: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in table.items() if name not in HEADER}


if __name__ == "__main__":
    main()
