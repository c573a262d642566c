"""Additions to mkdocs' build of the site: pages that are kept elsewhere in the repository, and the
list of rules.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
#: Pages of the site, and the files outside docs/ that they are.
ELSEWHERE = {"results.md": "benchmarks/RESULTS.md", "changelog.md": "CHANGELOG.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of rules into the navigation, under `rules/`."""
    subjects = sorted(
        path.stem for path in (ROOT / "docs" / "rules").glob("*.md") if path.stem != "README"
    )
    _fill(config.nav, ["rules/README.md", *(f"rules/{subject}.md" for subject in subjects)])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are kept elsewhere; links lead from one to another as they do in the
    repository.
    """
    for name, source in ELSEWHERE.items():
        text = (
            (ROOT / source)
            .read_text(encoding="utf-8")
            .replace("](../docs/", "](")
            .replace("](docs/", "](")
        )
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: object, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files that are kept elsewhere to their pages, and hide from mkdocs what only
    tests read.
    """
    depth = "../" * str(page.file.src_uri).count("/")  # type: ignore[attr-defined]
    for name, source in ELSEWHERE.items():
        markdown = markdown.replace(f"](../{depth}{source}", f"]({depth}{name}")
    return re.sub(r'^( *```\w+.*?) needs="[^"]*"', r"\1", markdown, flags=re.MULTILINE)


def _fill(entries: object, pages: list[str]) -> None:
    for entry in entries if isinstance(entries, list) else ():
        for title, inner in list(entry.items()) if isinstance(entry, dict) else ():
            if inner == "rules/":
                entry[title] = pages
            _fill(inner, pages)
