"""Make a release: `python -m scripts.release VERSION`; with `--publish` also upload it and push the
tag.

It stops where the checkout has changes, the version of the package or a section of the changelog is
missing, or a built archive is not fit to be uploaded. Without `--publish` nothing leaves this
machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    """Check, build and tag; upload only where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument(
        "--publish", action="store_true", help="upload the archives and push the tag"
    )
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    asked = parser.parse_args(arguments)
    lacking = list(missing(root, asked.version))
    if lacking:
        sys.exit("not ready:\n" + "\n".join(f"- {reason}" for reason in lacking))
    if asked.check:
        return
    archives = build(root)
    _run(
        root, "git", "tag", "--annotate", f"v{asked.version}", "--message", f"dsgen {asked.version}"
    )
    if asked.publish:
        _run(root, sys.executable, "-m", "twine", "upload", *archives)
        _run(root, "git", "push", "origin", f"v{asked.version}")
    else:
        print(f"built and tagged v{asked.version}; nothing was uploaded (--publish does)")


def missing(root: Path, version: str) -> Iterator[str]:
    """Return what keeps the checkout from being released as `version`."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"{version!r} is not a version such as 0.2.0"
    changed = _output(root, "git", "status", "--porcelain")
    if changed:
        yield (
            f"the checkout has changes: {', '.join(line[3:] for line in changed.splitlines()[:5])}"
        )
    if _output(root, "git", "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists"
    text = (root / "generator" / "version.py").read_text(encoding="utf-8")
    written = re.search(r'__version__\s*(?::[^=]*)?=\s*"([^"]+)"', text)
    if written is None or written[1] != version:
        yield f"generator/version.py has {written[1] if written else 'no version'}, not {version}"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section `## {version}`"


def build(root: Path) -> list[str]:
    """The paths of sdist and wheel, the wheel made from the sdist; both are fit to be uploaded."""
    for folder in ("build", "dist"):
        shutil.rmtree(root / folder, ignore_errors=True)
    _run(root, sys.executable, "-m", "build", "--outdir", "dist", ".")
    archives = sorted(str(path) for path in (root / "dist").iterdir())
    _run(root, sys.executable, "-m", "twine", "check", "--strict", *archives)
    return archives


def _run(root: Path, *command: str) -> None:
    subprocess.run(command, cwd=root, check=True)


def _output(root: Path, *command: str) -> str:
    return subprocess.run(
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.rstrip("\n")


if __name__ == "__main__":
    main()
