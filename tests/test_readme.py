"""The README is short, and names what there is; that what it shows is true, `tests/docs` checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from dsgen.cli import commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_is_short() -> None:
    """The README has fewer than 150 lines."""
    assert len(README.splitlines()) < 150


def test_built_in_job_is_an_example() -> None:
    """The built-in job is the example of the same name: the same job and the same plan."""
    answers = [
        json.loads(
            CliRunner().invoke(commands, ["plan", *spec, "--top", "1", "--format", "json"]).stdout
        )["plans"][0]
        for spec in ([str(ROOT / "examples" / "gpt3-175b-azure.yaml")], [])
    ]
    assert {**answers[0], "findings": []} == {**answers[1], "findings": []}


def test_links_lead_to_files() -> None:
    """Every relative link of README and CONTRIBUTING leads to a file; the build of the site checks
    those of docs.
    """
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text(encoding="utf-8")):
            assert "://" in target or (ROOT / target).exists(), f"{page}: {target}"
