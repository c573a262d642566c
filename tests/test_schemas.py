"""The published schema of the job spec lists what the tables of frameworks and launchers hold."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from dsgen.frameworks import FRAMEWORKS
from dsgen.launchers import LAUNCHERS

SCHEMA = Path(str(files("dsgen.schemas") / "job.schema.json"))


def test_the_schema_lists_frameworks_and_targets(update_golden: bool) -> None:
    """`framework` and `launch.target` accept the names of the two tables; --update-golden writes them."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    framework, target = schema["properties"]["framework"], schema["$defs"]["launch"]["properties"]["target"]
    if update_golden:
        framework["enum"], target["enum"] = list(FRAMEWORKS), list(LAUNCHERS)
        SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert (framework["enum"], target["enum"]) == (list(FRAMEWORKS), list(LAUNCHERS))


def test_the_schema_describes_the_keys_of_every_launcher() -> None:
    """`launch.<target>` has the keys that the launcher reads, and each is described."""
    launch = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"]
    for name, launcher in LAUNCHERS.items():
        assert set(launch[name]["properties"]) == launcher.keys
        assert all(key["description"] for key in launch[name]["properties"].values())
