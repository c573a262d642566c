"""Draw docs/summary.svg, the picture of the README: the output of `dsgen --gpus 1024`.

Run with `make picture`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from click.testing import CliRunner

from dsgen.cli import commands

PICTURE = Path(__file__).with_name("summary.svg")
COMMAND = ("--gpus", "1024")
WIDTH = 80  #: columns
_CHARACTER, _LINE, _EDGE = 8.4, 19.0, 18.0  #: pixels, of a monospaced font of 14
_WORDS = re.compile(r"\S+(?: \S+)*")
_STYLED = re.compile(r"\x1b\[([\d;]*)m")


def main() -> None:
    """Plan the built-in job and draw its first screen."""
    PICTURE.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """The output as a terminal shows it, without web fonts, so that it loads nothing."""
    lines = [*_output()]
    width, height = WIDTH * _CHARACTER + 2 * _EDGE, (len(lines) + 2) * _LINE + _EDGE
    texts = [
        f'<text y="{(row + 2) * _LINE + _EDGE:g}">{"".join(_spans(line))}</text>'
        for row, line in enumerate(lines)
    ]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, '
            'monospace" font-size="14">',
            '<rect width="100%" height="100%" rx="8" fill="#16191f"/>',
            f'<text x="50%" y="{_EDGE + 6:g}" fill="#9aa6b5" text-anchor="middle">dsgen '
            f"{' '.join(COMMAND)}</text>",
            '<g fill="#d6dae0">',
            *texts,
            "</g>",
            "</svg>\n",
        )
    )


def _output() -> Iterator[str]:
    """The lines of standard output with their styles, in a folder of their own."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            result = CliRunner().invoke(commands, COMMAND, env={"COLUMNS": str(WIDTH)}, color=True)
        finally:
            os.chdir(here)
    yield from result.stdout.splitlines()


def _spans(line: str) -> Iterator[str]:
    """Words of one style, each group at its column."""
    style, column = "", 0
    for at, part in enumerate(_STYLED.split(line)):
        if at % 2:
            style = _attributes(part)
        else:
            for words in _WORDS.finditer(part):
                start = _EDGE + (column + words.start()) * _CHARACTER
                yield f'<tspan x="{start:g}"{style}>{escape(words[0])}</tspan>'
            column += len(part)


def _attributes(codes: str) -> str:
    """SVG's attributes of the codes of a style (ECMA-48, SGR): bold, and one of 256 colours."""
    bold = ' font-weight="bold"' if re.match(r"1(;|\Z)", codes) else ""
    colour = re.search(r"38;5;(\d+)", codes)
    return f'{bold} fill="{_rgb(int(colour[1]))}"' if colour else bold


def _rgb(number: int) -> str:
    """A colour of xterm's: a cube of 6 x 6 x 6 from 16 on, and greys from 232 on."""
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    parts = ((number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6)
    return "#" + "".join(f"{55 + 40 * part if part else 0:02x}" for part in parts)


if __name__ == "__main__":
    main()
