"""The colours of the terminal: readable on a dark and on a light background. No meaning hangs on them alone."""

from __future__ import annotations

import os
from typing import Final

#: Numbers of the 256 fixed colours, of medium brightness; the first 16 are whatever a terminal's theme makes of them.
RED: Final = 160
ORANGE: Final = 130
GREEN: Final = 28
TEAL: Final = 30
BLUE: Final = 32
PURPLE: Final = 133
OLIVE: Final = 100
GREY: Final = 244
PALETTE: Final = frozenset({RED, ORANGE, GREEN, TEAL, BLUE, PURPLE, OLIVE, GREY})


def style(colour: int | None = None, *, bold: bool = False) -> str:
    """The name of a style, as rich has it."""
    return " ".join((*(["bold"] if bold else []), *([f"color({colour})"] if colour is not None else [])))


#: What explains something else: legends, conventions, counts.
ASIDE: Final = style(GREY)
BAD: Final = style(RED, bold=True)
BOLD: Final = style(bold=True)


def wanted() -> bool:
    """Whether text for a terminal may be coloured: not with NO_COLOR (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")
