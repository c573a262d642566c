"""Additions to mkdocs' build of the site: pages that are kept elsewhere in the repository, the list
of rules, and for programs that read the site `llms.txt` with every page as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    shown = re.sub(r'^( *```\w+.*?) needs="[^"]*"', r"\1", markdown, flags=re.MULTILINE)
    _SHOWN[str(page.file.src_uri)] = shown  # type: ignore[attr-defined]
    return shown


#: The pages that were built, by their names, as Markdown.
_SHOWN: dict[str, str] = {}


def on_post_build(config: MkDocsConfig) -> None:
    """Write each page as Markdown beside its HTML, and `llms.txt`, which lists them."""
    site = Path(config.site_dir)
    for name, text in _SHOWN.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    text = llms_text(config.site_name, config.site_description or "", config.nav, _SHOWN)
    (site / "llms.txt").write_text(text, encoding="utf-8")


def llms_text(name: str, about: str, nav: object, pages: Mapping[str, str]) -> str:
    """The index of a site in the form of llmstxt.org: a line for each page of the navigation, with
    its title and what it begins with.
    """
    lines = [f"# {name}", "", f"> {about}"]
    section = None
    for part, page in _in_order(nav):
        if part != section:
            lines += ["", f"## {part}", ""]
            section = part
        lines.append(_line(page, pages[page]))
    return "\n".join(lines) + "\n"


def _in_order(entries: object, part: str = "") -> Iterator[tuple[str, str]]:
    """The pages of the navigation in order, each with the part of the site that it is in."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str):
            yield part, entry
            continue
        for title, inner in entry.items():
            if isinstance(inner, str):
                yield part or title, inner
            else:
                yield from _in_order(inner, part or title)


def _line(page: str, markdown: str) -> str:
    """`- [Plan a run](plan.md): the first sentence of the page`."""
    title = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    blocks = re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL).split("\n\n")
    prose = (" ".join(block.split()) for block in blocks)
    first = next((text for text in prose if re.match(r"[A-Z`\[]", text)), "")
    sentence = re.split(r"(?<=[.:])\s", first, maxsplit=1)[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    return f"- [{title[1] if title else page}]({page})" + (f": {plain}" if plain else "")


def _fill(entries: object, pages: list[str]) -> None:
    for entry in entries if isinstance(entries, list) else ():
        for title, inner in list(entry.items()) if isinstance(entry, dict) else ():
            if inner == "rules/":
                entry[title] = pages
            _fill(inner, pages)
