"""Texts to read as JSON and HJSON: valid ones, nearly valid ones and rubbish, from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from dsgen.text.text import Text

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

PIECES = [
    *"{}[],:#/\\\"'\n\n\t 1éx",
    *(
        '"a"',
        '"b"',
        "key",
        "true",
        "false",
        "null",
        "-1",
        "01",
        ".5",
        "-",
        "1.5",
        "1e3",
        "1E+2",
        "1e999",
        "-0.0",
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "\r\n",
        "\r",
        "  ",
        "#c",
        "//c",
        "/*c*/",
        "/*",
        "*/",
        "'''",
        "'a'",
        "''",
        "\\n",
    ),
    *("\\u0041", "\\ud83d\\ude00", "\\ud83d", "\\u0x1", "\\'", "\u00a0", "\u2028"),
    *(
        "\x85",
        "١",
        "1١",
        "true\u00a0",
        "x y",
        "\ufeff",
        '"a":',
        '"b": ',
        "a: ",
        "b:",
        '{"a":1}',
        "[1,2]",
        ", ",
    ),
    *(
        "'''\n  x\n  '''",
        "12345678901234567890",
        "1.0",
        "1e9",
        "1e10",
        '"\\/"',
        "truex",
        "nul",
        "foo bar",
        '""',
    ),
]
SCALARS = [
    *(
        '"s"',
        '"s t"',
        "'q'",
        "1",
        "-2",
        "3.5",
        "1e5",
        "1.0",
        "true",
        "false",
        "null",
        "NaN",
        "0",
        "1e400",
        "-0",
    ),
    *('"\\n\\u00e9"', '"\\\'"', "word\n", "two words, and # more\n", "12x\n", "true\u00a0"),
]
KEYS = ['"a"', '"b"', '"c~/"', "a", "b", "c", "d", '"e"', "'f'", "g", '"h"', "i", '"\\u0061"']


def as_text(content: str) -> Text:
    """`content` as a document, control characters and all."""
    return Text(path="ds_config.json", content=content, lines=_LINE_BREAK.split(content))


def value(rng: random.Random, depth: int = 0) -> str:
    """The text of a value, mostly as hjson reads it."""
    kind = rng.random()
    if depth < 3 and kind < 0.3:
        return (
            "{" + _blank(rng) + "".join(_member(rng, depth) for _ in range(rng.randrange(4))) + "}"
        )
    if depth < 3 and kind < 0.45:
        items = (value(rng, depth + 1) + _comma(rng) for _ in range(rng.randrange(4)))
        return "[" + _blank(rng) + "".join(items) + "]"
    if kind < 0.55:
        body = rng.choice(["x", "  y", " z\n   w\n", "it''s", ""])
        before = rng.choice(["", "\n", "  \n"])
        return f"'''{before}{body}{rng.choice(['', chr(10), chr(10) + '   '])}'''"
    return rng.choice(SCALARS)


def texts(seed: int, count: int) -> Iterator[str]:
    """Whole documents: a quarter rubbish, the rest valid, mutated, with other line breaks or
    without braces.
    """
    rng = random.Random(seed)
    for number in range(count):
        kind = number % 4
        if kind == 0:
            yield "".join(rng.choice(PIECES) for _ in range(rng.randrange(14)))
            continue
        content = value(rng)
        if rng.random() < 0.3:
            content = rng.choice(["{a: ", '{\n"a":', ""]) + content + rng.choice(["}", "\n}", ""])
        if rng.random() < 0.3:
            content = content.strip()[1:-1] if content.startswith("{") else f"a: {content}"
        if kind == 2:
            at = rng.randrange(len(content) + 1)
            content = (
                content[:at] + rng.choice([*PIECES, *[""] * 20]) + content[at + rng.randrange(3) :]
            )
        if kind == 3:
            content = content.replace("\n", rng.choice(["\n", "\r\n", "\r"]))
        yield content if rng.random() < 0.95 else "\ufeff" + content


def _blank(rng: random.Random) -> str:
    return rng.choice(["", "", "", " ", "\n", "\r\n", " /*c*/ ", " # c\n", "\t"])


def _comma(rng: random.Random) -> str:
    return rng.choice([",", ",", ",\n", "\n", " ,", "\n,", ""]) + _blank(rng)


def _member(rng: random.Random, depth: int) -> str:
    key = rng.choice(KEYS)
    colon = rng.choice(["", " ", "\n", "/*c*/"] if key[0] in "\"'" else ["", " "]) + ":"
    return key + colon + _blank(rng) + value(rng, depth + 1) + _comma(rng)
