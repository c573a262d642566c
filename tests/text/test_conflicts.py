"""Merge conflicts are found by git's markers, all of them in order."""

from __future__ import annotations

import pytest

from dsgen.text.conflicts import conflicts_in, one_side

_CONFLICT = "a\n<<<<<<< HEAD\nb\nc\n=======\nd\n>>>>>>> other\ne\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_side_is_kept_and_every_line_keeps_its_number(newline: str) -> None:
    """Of each conflict the first side is left, and lines below it stay where they are."""
    text = (_CONFLICT * 2).replace("\n", newline)
    assert conflicts_in(text) == (1, 9)
    kept = one_side(text).replace("\r", "")
    assert kept == "a\n\nb\nc\n\n\n\ne\n" * 2


@pytest.mark.parametrize(
    "text",
    [
        "Heading\n=======\ntext\n",
        "<<<<<<< HEAD\na\n=======\nb\n",
        "cat <<<<<<< HEAD\n=======\n>>>>>>> other\n",
        _CONFLICT.replace("\n", "\n  "),  # quoted in a text
        _CONFLICT.replace("=======", "========"),
    ],
)
def test_what_lacks_a_marker_is_no_conflict(text: str) -> None:
    """A heading, a here-document's sign or a quoted conflict is left as it is."""
    assert conflicts_in(text) == ()
    assert one_side(text) == text
