"""The release script says what is missing, and builds, tags and uploads nothing before all is
there.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.release import main, missing


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that is ready to be released as 1.2.3."""
    (tmp_path / "generator").mkdir()
    (tmp_path / "generator" / "version.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\n\n- All.\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "all")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_ready(checkout: Path) -> None:
    """Nothing is missing where version, changelog, tag and checkout agree."""
    assert not list(missing(checkout, "1.2.3"))
    main(["1.2.3", "--check"], checkout)


def test_everything_that_is_missing_is_said(checkout: Path) -> None:
    """Changes, an existing tag, another version and a missing section are said together."""
    git(checkout, "tag", "v1.3.0")
    (checkout / "new.txt").write_text("", encoding="utf-8")
    assert list(missing(checkout, "1.3.0")) == [
        "the checkout has changes: new.txt",
        "the tag v1.3.0 exists",
        "generator/version.py has 1.2.3, not 1.3.0",
        "CHANGELOG.md has no section `## 1.3.0`",
    ]
    with pytest.raises(SystemExit, match="not ready"):
        main(["1.3.0", "--publish"], checkout)
    assert not (checkout / "dist").exists()
