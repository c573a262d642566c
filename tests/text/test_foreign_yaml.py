"""YAML of other programs is read as PyYAML's `safe_load` reads it, with places."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dsgen.text.document import read_yaml
from dsgen.text.source import Source
from dsgen.text.text import UnreadableText, text_of


def read(content: str, path: str = "job.yml") -> Source:
    """The document as a source."""
    return read_yaml(text_of(content, path))


def same(ours: object, theirs: object) -> bool:
    """Whether two values are equal and of one type; keys are compared as text, not-a-numbers are
    alike.
    """
    if isinstance(theirs, dict):
        return (
            isinstance(ours, dict)
            and len(ours) == len(theirs)
            and all(map(same, ours.values(), theirs.values()))
        )
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float) and math.isnan(theirs):
        return isinstance(ours, float) and math.isnan(ours)
    return type(ours) is type(theirs) and ours == theirs


SCALARS = [
    "no",
    "yes",
    "on",
    "off",
    "true",
    "False",
    "y",
    "n",
    "Null",
    "~",
    "12:30",
    "1:30:15",
    "1_000",
    "0x1F",
    "017",
    "0o17",
    "08",
    "1e-5",
    "1.0e-5",
    "1e5",
    "1.5e+3",
    ".5",
    "5.",
    ".inf",
    "-.Inf",
    ".nan",
    "2026-01-31",
    "2026-01-31T10:00:00Z",
    "2026-01-31t10:00:00.5-05:00",
    "+12",
    "-0",
    "0b101",
    "'no'",
    '"12:30"',
    "!!str no",
    "a:b",
]


@pytest.mark.parametrize("text", SCALARS)
def test_a_scalar_is_what_safe_load_makes_of_it(text: str) -> None:
    """Each plain and quoted scalar gets PyYAML's value and type."""
    assert same(read(f"a: {text}\n").data, yaml.safe_load(f"a: {text}\n"))


def test_merge_keys_take_in_what_is_not_there() -> None:
    """`<<` brings the keys of the mappings it names; own keys win, and the first of a list wins."""
    content = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  c: 5\n"
    source = read(content)
    assert source.data == yaml.safe_load(content)
    assert source.findings == ()
    assert source.locate_key("/z/a").line == 4
    assert source.locate("/z/c").line == 5


def test_merging_what_is_no_mapping_is_an_error() -> None:
    """A `<<` with a number is what PyYAML refuses too."""
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load("a:\n  <<: 3\n")
    assert [finding.rule for finding in read("a:\n  <<: 3\n").findings] == ["SPEC002"]


def test_the_last_of_two_counts() -> None:
    """A key that is there twice has its last value, and is told of."""
    source = read("a: 1\nb: 2\na: {c: 3}\n")
    assert source.data == yaml.safe_load("a: 1\nb: 2\na: {c: 3}\n")
    assert [finding.rule for finding in source.findings] == ["SPEC003"]
    assert source.locate("/a/c").line == 3


def test_keys_that_are_no_text_are_noted() -> None:
    """`on` as a key is true for PyYAML: the data keeps the text, `odd_keys` the value."""
    source = read("tags: {on: a, 1: b, '2': c}\n")
    assert source.data == {"tags": {"on": "a", "1": "b", "2": "c"}}
    assert source.odd_keys == {"/tags/on": True, "/tags/1": 1}


def test_json_keeps_its_numbers() -> None:
    """In a JSON file 1e-5 is a number, as for Python's json."""
    assert read('{"a": 1e-5}', "default_config.json").data == {"a": 1e-5}


@pytest.mark.parametrize(
    "text", ["!!int x", "!!python/object:os.system x", "2026-13-45", "!!bool maybe", "0b_"]
)
def test_what_safe_load_refuses_is_a_finding(text: str) -> None:
    """A tag that safe_load doesn't know, or that doesn't fit, is told of and raises nothing."""
    with pytest.raises((yaml.YAMLError, ValueError, KeyError)):
        yaml.safe_load(f"a: {text}")
    assert [finding.rule for finding in read(f"a: {text}").findings] == ["SPEC004"]


def test_an_empty_file_is_told_of() -> None:
    """Nothing in a file is an error of its own."""
    source = read("  \n")
    assert [finding.message for finding in source.findings] == ["the file is empty"]
    assert not source.complete


_LEAVES = st.sampled_from([*SCALARS[:20], "text", "'quoted'", '"double"'])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["alpha", "beta", "gamma"]), _VALUES, min_size=1))
def test_documents_are_what_safe_load_makes_of_them(document: dict[str, str]) -> None:
    """Whatever is put together of scalars, lists and mappings has PyYAML's value."""
    content = "".join(f"{key}: {value}\n" for key, value in document.items())
    assert same(read(content).data, yaml.safe_load(content))


@given(st.text(max_size=80))
def test_any_text_is_read(content: str) -> None:
    """No text raises anything but that it is no text."""
    try:
        text = text_of(content, "job.yml")
    except UnreadableText:
        return
    source = read_yaml(text)
    if not source.findings:
        assert same(source.data, yaml.safe_load(content))
