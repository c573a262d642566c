"""The published schema of the job spec lists what the tables of frameworks and launchers hold."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import dsgen
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS

SCHEMA = Path(str(files("dsgen.schemas") / "job.schema.json"))


def test_the_schema_lists_frameworks(update_golden: bool) -> None:
    """`framework` accepts the names of the table of frameworks; --update-golden writes them."""
    text = SCHEMA.read_text(encoding="utf-8")
    known = json.loads(text)["properties"]["framework"]["enum"]
    if update_golden:
        SCHEMA.write_text(text.replace(json.dumps(known), json.dumps(list(FRAMEWORKS))), encoding="utf-8")
    else:
        assert known == list(FRAMEWORKS)


def test_every_target_of_the_schema_has_a_launcher() -> None:
    """`launch.target` accepts what there are launchers for, each under its own name."""
    targets = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"]["target"]["enum"]
    assert [launcher.name for launcher in LAUNCHERS.values()] == targets


def test_the_schema_describes_the_keys_of_every_launcher() -> None:
    """`launch.<target>` has the keys that the launcher and what it uses read by name, and each is described."""
    package = Path(dsgen.__file__).parent
    launch = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"]
    for name in LAUNCHERS:
        folders = (package / "programs" / name, package / "programs" / "launching", package / "job")
        text = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
        assert [key for key in launch[name]["properties"] if f'"{key}"' not in text] == []
        assert all(key["description"] for key in launch[name]["properties"].values())
