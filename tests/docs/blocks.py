"""The fenced blocks of README and docs: how each is read.

    ```console                 commands after `$ `, and what each prints; a line `...` stands for
                               any lines
    ```sh                      commands that succeed; what they print isn't shown
    ```yaml title="job.yaml"   a file, in any language, which later blocks of the page find
    ```yaml                    keys of a job spec, which loads with them, and is job.yaml for later
                               blocks
    ```json                    a DeepSpeed config without an error
    ```python                  a program that runs
    ```sh needs="a cluster"    anything that can't be run here, and why; its commands of dsgen must
                               parse

Blocks of a page share a folder, in which `examples` is that of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"\A# .*\n\n(?:.*\n\n)?<!-- Written by `python -m docs\.")
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.M | re.S,
)
_TOOK = re.compile(r"\([\d.]+ m?s\)")
_OPTION = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    options: dict[str, str]
    text: str  #: without the block's indentation
    indent: str
    start: int  #: of the text in the page
    end: int
    line: int

    @property
    def place(self) -> str:
        """Where it is, as tests name it."""
        inside = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT) if inside else self.page.name}:{self.line}"


def written_pages() -> list[Path]:
    """README and the pages of docs/ that are written by hand; those made from code are compared
    with it elsewhere.
    """
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if not MADE.match(page.read_text(encoding="utf-8"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    content = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(content):
        language, _, rest = match["info"].strip().partition(" ")
        indent = match["indent"]
        yield Block(
            page=page,
            language=language,
            options=dict(_OPTION.findall(rest)),
            text=re.sub(f"^{indent}", "", match["text"], flags=re.M),
            indent=indent,
            start=match.start("text"),
            end=match.end("text"),
            line=content.count("\n", 0, match.start()) + 1,
        )


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a console, as it is shown, and what it is said to print."""

    shown: str  #: with `$ `, and the lines that it goes on in
    output: str

    @property
    def text(self) -> str:
        """What is typed."""
        return re.sub(r"\\\n\s*", " ", self.shown.removeprefix("$ ")).strip()


def console_commands(text: str) -> list[Command]:
    """The commands of a console with their outputs."""
    found = re.findall(r"^(\$ (?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", text, re.M)
    return [Command(shown=shown, output=output) for shown, output in found]


def shell_commands(text: str) -> list[str]:
    """The commands of a shell block: lines, with those that they go on in, without comments."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [line for line in (re.sub(r"(^|\s)# .*$", "", line).strip() for line in lines) if line]


def agrees(shown: str, printed: str) -> bool:
    """Whether what is shown is what was printed, but for what `...` leaves out and the time that a
    search took.
    """
    parts = re.split(r"^\.\.\.\n", _TOOK.sub("()", shown), flags=re.M)
    return (
        re.fullmatch(r"(?:.*\n)*".join(map(re.escape, parts)), _TOOK.sub("()", printed)) is not None
    )


def renewed(shown: str, printed: str) -> str:
    """`printed` with the cuts of `shown`: each part begins at the line that is most like the one it
    began at.
    """
    parts = [part.splitlines(keepends=True) for part in re.split(r"^\.\.\.\n", shown, flags=re.M)]
    lines = printed.splitlines(keepends=True)
    if len(parts) == 1:
        return printed
    kept, at = [], 0
    for number, part in enumerate(parts):
        start = _nearest(part, lines, at) if number else 0
        at = start + len(part) if number < len(parts) - 1 or not part else len(lines)
        kept.append("".join(lines[start:at]))
    return "...\n".join(kept)


def _nearest(part: list[str], lines: list[str], start: int) -> int:
    words = set(part[0].split()) if part else set()
    return max(
        range(start, len(lines)),
        key=lambda i: (len(words & set(lines[i].split())), -i),
        default=start,
    )
