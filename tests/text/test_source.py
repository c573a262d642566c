"""YAML 1.2 and JSON as data with places."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.text.source import MAX_NODES, Source, parse
from dsgen.text.text import text_of


def read(content: str) -> Source:
    """`content` as a source."""
    return parse(text_of(content, "spec.yaml"))


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("~", None),
        ("null", None),
        ("", None),
        ("12:30:00", "12:30:00"),
        ("2-00:00:00", "2-00:00:00"),
        ("2026-01-02", "2026-01-02"),
        ("1e9", 1e9),
        ("300e9", 300e9),
        ("1E-4", 1e-4),
        (".5", 0.5),
        ("5.", 5.0),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("-3", -3),
        ("+3", 3),
        ("-.inf", -math.inf),
        (".INF", math.inf),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("'7'", "7"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!float 3", 3),
        ("\N{ARABIC-INDIC DIGIT THREE}", "\N{ARABIC-INDIC DIGIT THREE}"),
    ],
)
def test_scalars_are_read_as_the_core_schema_says(scalar: str, value: object) -> None:
    """A scalar has the type that YAML 1.2's core schema gives it, not YAML 1.1's."""
    source = read(f"key: {scalar}\n")
    assert source.findings == ()
    assert isinstance(source.data, dict)
    assert source.data["key"] == value
    assert type(source.data["key"]) is type(value)


def test_nan_is_a_number() -> None:
    """`.nan` is read as a number, which later checks refuse."""
    data = read("key: .nan").data
    assert isinstance(data, dict)
    assert math.isnan(data["key"])


def test_every_key_and_value_has_its_place() -> None:
    """Lines and columns count from 1 and point at the first character of the key or value."""
    source = read('a: 1\nb:\n  - x\n  - {c/d: "é", e: 2}\n')
    places = {pointer: (where.line, where.column) for pointer, where in source.locations.items()}
    assert places == {
        "": (1, 1),
        "/a": (1, 4),
        "/b": (3, 3),
        "/b/0": (3, 5),
        "/b/1": (4, 5),
        "/b/1/c~1d": (4, 11),
        "/b/1/e": (4, 19),
    }
    assert source.keys["/b/1/e"].column == 16
    assert source.locations["/b/0"].excerpt == "  - x"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_every_line_break_counts_as_one(line_break: str) -> None:
    """Files of all three systems have the same lines and excerpts."""
    where = read(f"a: 1{line_break}b: 2{line_break}").locations["/b"]
    assert (where.line, where.column, where.excerpt) == (2, 4, "b: 2")


def test_the_nearest_place_stands_for_a_missing_one() -> None:
    """A pointer without a value of its own is located at what is around it."""
    where = read("a: {b: 1}").locate("/a/c/d")
    assert (where.pointer, where.line, where.column) == ("/a/c/d", 1, 4)


def test_json_may_be_indented_with_tabs() -> None:
    """JSON is read with tabs, escaped slashes and surrogate pairs, and its columns count tabs as
    one.
    """
    source = read('{\n\t"a":\t"tab\\t\\/\\ud83d\\ude00",\n\t"b": [1.5, true, null]\n}')
    assert source.data == {"a": "tab\t/\N{GRINNING FACE}", "b": [1.5, True, None]}
    assert (source.locations["/a"].line, source.locations["/a"].column) == (2, 7)


def test_aliases_repeat_values() -> None:
    """An alias has the value of its anchor and a place of its own."""
    source = read("a: &x [1, 2]\nb: *x\n")
    assert source.data == {"a": [1, 2], "b": [1, 2]}
    assert source.locations["/b"].line == 2


def test_numbers_keep_how_they_were_written() -> None:
    """`texts` has the spelling of every number."""
    assert read("a: [1e-4, 007, 1.10, x]").texts == {"/a/0": "1e-4", "/a/1": "007", "/a/2": "1.10"}


def test_a_second_key_does_not_hide_the_first() -> None:
    """Of a key given twice the first value and its place are kept."""
    source = read("a: {b: 1}\na: {b: 2}\n")
    assert source.data == {"a": {"b": 1}}
    assert source.locations["/a/b"].line == 1
    assert [finding.rule for finding in source.findings] == ["SPEC003"]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("[" * 100_000, "SPEC005"),
        ("- " * 100_000, "SPEC005"),
        ("a: &a [*a]", "SPEC004"),
        ("? [a]\n: b", "SPEC004"),
        ("a: " + "9" * 5000, "SPEC004"),
        ("a: !!int x", "SPEC004"),
        ("%YAML 9.9\n---\na: 1", "SPEC002"),
        ('a: "\\ud800"', "SPEC002"),
        ("a: [1, 2", "SPEC002"),
        ("\n".join(f"k{i}: 1" for i in range(MAX_NODES + 1)), "SPEC005"),
    ],
)
def test_what_cannot_be_read_is_a_finding(content: str, rule: str) -> None:
    """Hostile and broken text ends in a finding of its rule."""
    assert [finding.rule for finding in read(content).findings] == [rule]


json_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))
)
json_values = st.recursive(
    json_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc/~ é"), inner)
)


@given(json_values)
def test_json_survives_reading(value: object) -> None:
    """What json writes, in both of its forms, is read as the same data."""
    for ascii_only in (True, False):
        source = read(json.dumps({"key": value}, ensure_ascii=ascii_only))
        assert source.findings == ()
        assert source.data == {"key": value}


def test_a_long_line_has_its_excerpt() -> None:
    """A launch line with all its options is shown around a place beyond its first hundreds of
    characters.
    """
    line = "train.py " + " ".join(f"--option-{number} {number}" for number in range(100))
    assert text_of(line, "run.sh").locate(0, 1500).excerpt == line
