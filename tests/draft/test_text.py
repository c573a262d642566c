"""`spec_text`: what is written is what the spec's reader reads."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.draft import spec_text
from dsgen.text.source import parse
from dsgen.text.text import text_of

TEXT = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
)
VALUES = st.one_of(
    TEXT, st.integers(-(10**12), 10**12), st.booleans(), st.floats(-1e9, 1e9), st.none()
)
CONFIGS = st.dictionaries(
    TEXT, st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(TEXT, VALUES, max_size=3))
)


def read(text: str) -> Any:
    """What a spec's reader makes of a text."""
    source = parse(text_of(text, "dsgen.yaml"))
    assert source.findings == (), text
    return source.data


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, name=TEXT, note=st.text(max_size=40))
def test_specs_survive_the_round_trip(config: dict[str, Any], name: str, note: str) -> None:
    """Whatever keys, text and numbers a spec has, and whatever a note says, reading gives them
    back.
    """
    spec: dict[str, Any] = {"name": name, "deepspeed_config": config}
    text = spec_text(spec, head=[note], tail=[note], comments={}, from_files=True)
    assert read(text) == {"name": name, "deepspeed_config": config}


@settings(max_examples=60, deadline=None)
@given(words=st.lists(TEXT, min_size=1, max_size=6))
def test_arguments_keep_their_words(words: list[str]) -> None:
    """Words of a command line come back as they were, as text or as numbers that are written so."""
    words = [f"--{words[0]}", *words[1:]]
    spec = {"launch": {"arguments": words}}
    source = parse(text_of(spec_text(spec), "dsgen.yaml"))
    held = source.value("/launch/arguments")
    assert isinstance(held, list)
    told = [
        one if isinstance(one, str) else source.texts[f"/launch/arguments/{i}"]
        for i, one in enumerate(held)
    ]
    assert told == words


def test_comments_stay_comments() -> None:
    """A note with a line break doesn't become a key."""
    assert read(spec_text({"gpus": 8}, tail=["a\nmodel: b"])) == {"gpus": 8}
