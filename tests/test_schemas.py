"""The published schema of the job spec lists what the tables of frameworks and launchers hold."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS

SCHEMA = Path(str(files("dsgen.schemas") / "job.schema.json"))


def test_the_schema_lists_frameworks_and_targets(update_golden: bool) -> None:
    """`framework` and `launch.target` accept the names of the two tables; --update-golden writes them."""
    text = SCHEMA.read_text(encoding="utf-8")
    schema = json.loads(text)
    framework, target = schema["properties"]["framework"], schema["$defs"]["launch"]["properties"]["target"]
    for key, table in ((framework, FRAMEWORKS), (target, LAUNCHERS)):
        if update_golden:
            text = text.replace(json.dumps(key["enum"]), json.dumps(list(table)))
            SCHEMA.write_text(text, encoding="utf-8")
        else:
            assert key["enum"] == list(table)


def test_the_schema_describes_the_keys_of_every_launcher() -> None:
    """`launch.<target>` has the keys that the launcher reads, and each is described."""
    launch = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"]
    for name, launcher in LAUNCHERS.items():
        assert set(launch[name]["properties"]) == launcher.keys
        assert all(key["description"] for key in launch[name]["properties"].values())
