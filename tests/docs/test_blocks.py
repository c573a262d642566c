"""Every block of README and docs is run, and what it shows is what is printed; tests/docs/blocks.py
has the kinds.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.docs.blocks import ROOT, agrees, blocks, renewed, written_pages
from tests.docs.running import page_folder, run_block

PAGES = [page for page in written_pages() if any(blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    """Every block of the page runs and prints what it shows, or says why it can't;
    `--update-golden` writes outputs.
    """
    content = page.read_text(encoding="utf-8")
    changed = []
    with page_folder(tmp_path, monkeypatch) as folder:
        for block in blocks(page):
            made = run_block(block, folder)
            if made is None or made == block.text:
                continue
            assert update_golden, f"{block.place} prints:\n{made}"
            changed.append(
                (block, "".join(block.indent + line for line in made.splitlines(keepends=True)))
            )
    for block, made in reversed(changed):
        content = content[: block.start] + made + content[block.end :]
    if changed:
        page.write_text(content, encoding="utf-8")


def test_cuts_leave_out_any_lines() -> None:
    """A line of dots stands for any lines, and for nothing else; a renewed output has its parts
    where they now are.
    """
    assert agrees("a\n...\nd\n", "a\nb\nc\nd\n") and agrees("a\n...\n", "a\n")
    assert not agrees("a\n...\nd\n", "a\nb\nc\n") and not agrees("a\n", "a\nb\n")
    assert (
        renewed("a\n...\nmemory 3\n...\nend 1\n", "a\nb\nmemory 4\nc\nend 2\n")
        == "a\n...\nmemory 4\n...\nend 2\n"
    )


def test_a_block_of_no_kind_fails(tmp_path: Path) -> None:
    """A block that is neither run nor says why not is an error, and so is a command in it that
    dsgen doesn't have.
    """
    page = tmp_path / "page.md"
    page.write_text(
        '```text\nx\n```\n\n```sh needs="a cluster"\ndsgen plan --no-such-option\n```\n',
        encoding="utf-8",
    )
    unknown, command = blocks(page)
    with pytest.raises(AssertionError, match="a block that isn't run"):
        run_block(unknown, tmp_path)
    with pytest.raises(click.NoSuchOption):
        run_block(command, tmp_path)
