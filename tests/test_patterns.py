"""What a pattern takes of time grows with its text, no faster."""

from __future__ import annotations

import time

import pytest

from dsgen.programs.launching.script import is_template

SIZE = 100_000
MOST_S = 1.0  #: processor time; what grows with the square takes five seconds and more


@pytest.mark.parametrize(
    "text", [" ", "\t", "\n", "0", "a", "-", "{ ", "a: ", "- ", "'", '"', "$", "\\"]
)
def test_templates_are_told_at_once(text: str) -> None:
    """Whether YAML is made of a text is told in time that grows with the text's length."""
    begun = time.process_time()
    assert not is_template(text * (SIZE // len(text)))
    assert time.process_time() - begun < MOST_S


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("{{ a }}", True),
        ("  {{ a }}", True),
        ("key: {{ a }}", True),
        ("  - {{ a }}", True),
        ("x {% if a %}", True),
        ("key: ${{ a }}", False),
        ("key: a {{ b }}", False),
    ],
)
def test_templates_are_told_by_their_expressions(text: str, is_one: bool) -> None:
    """A value or a line that is an expression makes a template; one within a text doesn't."""
    assert is_template(f"a: 1\n{text}\n") is is_one
