"""The site: built without a warning or a dead link, and nothing in it is loaded from the
network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.make_reference import pages, write
from docs.make_summary import PICTURE, picture
from tests.docs.blocks import written_pages
from tests.needs import needs_mkdocs

ROOT = Path(__file__).parents[2]
#: What a browser loads by itself, by element: the attribute that says where from.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@needs_mkdocs
@pytest.mark.integration
def test_every_page_is_built(site: Path) -> None:
    """The strict build, in which a dead link or anchor is a warning, succeeds silently and has
    every page of docs/.
    """
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    expected = {
        path.with_name("index.html" if path.stem == "README" else f"{path.stem}.html")
        for path in sources
    }
    assert expected <= {path.relative_to(site) for path in site.rglob("*.html")}


@needs_mkdocs
@pytest.mark.integration
def test_llms_txt_lists_every_page(site: Path) -> None:
    """llms.txt has each page of the site once, under its part, and leads to it as Markdown."""
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# dsgen\n\n> ")
    listed = re.findall(r"^- \[(.+)\]\((\S+)\)", text, re.MULTILINE)
    names = [name for _, name in listed]
    assert len(names) == len(set(names)) and "tutorial/first-plan.md" in names
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.md")}
    assert built == {*names}
    for title, name in listed:
        assert (site / name).read_text(encoding="utf-8").count(f"# {title}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[1] == "Tutorial"


@needs_mkdocs
def test_llms_txt_says_what_a_page_is() -> None:
    """A page's line has its title and its first sentence, without links; made pages have theirs."""
    from docs.hooks import llms_text

    pages = {
        "index.md": "# Home page\n\nIt [plans](plan.md) runs. And more.\n",
        "a.md": "# A\n\n<!-- made -->\n\n| a |\n\n## B\n",
    }
    nav = [{"Home": "index.md"}, {"Part": [{"Inner": ["a.md"]}]}]
    assert llms_text("x", "About.", nav, pages) == (
        "# x\n\n> About.\n\n## Home\n\n- [Home page](index.md): It plans runs.\n"
        "\n## Part\n\n- [A](a.md)\n"
    )


@needs_mkdocs
@pytest.mark.integration
def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    """Every script, style, picture and frame of a page is a file of the site."""
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        for address in _loaded(page.read_text(encoding="utf-8")):
            # the page of status 404 may be anywhere
            start = site if address.startswith("/") else page.parent
            assert (start / address.lstrip("/")).is_file(), f"{page.name}: {address}"


def test_written_pages_stay_short() -> None:
    """The pages of docs/ that are written by hand have at most 26,000 words in all."""
    pages = [
        page
        for page in written_pages()
        if page.is_relative_to(ROOT / "docs") and page.parent.name != "rules"
    ]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 26_000


def test_reference_is_fresh(update_golden: bool) -> None:
    """docs/reference is what `python -m docs.make_reference` writes; `--update-golden` writes it
    anew.
    """
    if update_golden:
        write()
    assert {path: path.read_text(encoding="utf-8") for path in pages()} == pages()


def test_the_picture_is_fresh(update_golden: bool) -> None:
    """docs/summary.svg is the first screen as it is printed; `--update-golden` draws it anew."""
    if update_golden:
        PICTURE.write_text(picture(), encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == picture()


def _loaded(page: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            attributes = dict(attrs)
            if tag != "link" or attributes.get("rel") in (
                "stylesheet",
                "preload",
                "preconnect",
                "icon",
            ):
                found.extend(filter(None, [attributes.get(LOADED.get(tag, ""))]))

    Reader().feed(page)
    return found
