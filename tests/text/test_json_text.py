"""DeepSpeed's JSON is read as hjson and Python's json read it, with the place of everything."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.text.hjson.text import JsonText, read_json
from tests.needs import needs_deepspeed
from tests.text.hjson_texts import PIECES, as_text, texts

HJSON = """\
# how we train
train_batch_size: 32   // all GPUs
zero_optimization: {
  stage: 2
  'cpu_offload': true
  note: two words, and more
}
lr: [1e-4, 0.5,]
text: '''
  one
    two
  '''
"""


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        members.setdefault(key, value)
    return members


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What DeepSpeed's hook does: no key twice."""
    members = _first(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is twice here")
    return members


def _same(ours: object, theirs: object) -> bool:
    """Equal, in order and in type, but for the ints that hjson makes of whole floats."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return ours == theirs and (
        type(ours) is type(theirs) or (isinstance(ours, float) and type(theirs) is int)
    )


def _read(content: str) -> JsonText:
    return read_json(as_text(content))


def _agrees(content: str) -> bool:
    """Both libraries and the reader say the same of a text, line breaks read as a file opened as
    text has them.
    """
    import hjson

    opened = content.replace("\r\n", "\n").replace("\r", "\n")
    doc = _read(content)
    try:
        theirs = hjson.loads(opened, object_pairs_hook=_once)
    except Exception:  # it fails in many ways: IndexError, OverflowError and so on
        assert doc.hjson_broken or doc.duplicates, (content, doc.data)
    else:
        assert doc.hjson_broken is None and not doc.duplicates, (content, doc.hjson_broken)
        assert _same(doc.data, theirs), (content, doc.data, theirs)
    try:
        theirs = json.loads(opened, object_pairs_hook=_first)
    except ValueError:
        assert not doc.json_reads, (content, doc.data)
    else:
        assert doc.json_reads, (content, doc.deviations, doc.broken)
        assert repr(doc.json_data) == repr(theirs), content
    for pointer, span in doc.spans.items():
        assert 0 <= span.start <= span.end <= len(content)
        assert doc.has(pointer)
        assert (doc.locate_key(pointer).line or 0) <= (doc.locate(pointer).line or 0)
    return True


@needs_deepspeed
@pytest.mark.parametrize("seed", range(4))
def test_generated_texts_read_as_hjson_and_json_read_them(seed: int) -> None:
    """Thousands of valid, mutated and random texts are taken, refused and understood as both
    libraries do.
    """
    for content in texts(seed, 2500):
        assert _agrees(content)


@needs_deepspeed
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join))
def test_any_text_reads_as_hjson_and_json_read_it(content: str) -> None:
    """Whatever pieces of JSON and other characters are put together, the reader and the libraries
    agree.
    """
    assert _agrees(content)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=15,
)


@needs_deepspeed
@given(data=JSON, indent=st.sampled_from([None, 2, "\t"]), ascii_only=st.booleans())
def test_what_json_writes_is_read_back(
    data: object, indent: int | str | None, ascii_only: bool
) -> None:
    """All that `json.dumps` writes is read as strict JSON, as the same data, each value where it
    stands.
    """
    content = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    doc = _read(content)
    assert doc.json_reads and repr(doc.data) == repr(data)
    for pointer, span in doc.spans.items():
        assert repr(json.loads(content[span.start : span.end])) == repr(doc.value(pointer))
        if span.key_start is not None:
            key = json.loads(content[span.key_start : span.key_end])
            assert pointer.endswith("/" + key.replace("~", "~0").replace("/", "~1"))
    assert _agrees(content)


def test_hjson_is_read_with_all_its_departures_from_json() -> None:
    """Each comment, bare key, bare text and superfluous comma is named, where it stands."""
    doc = _read(HJSON)
    assert (
        doc.broken is None
        and (doc.hjson_broken is None and not doc.duplicates)
        and not doc.json_reads
    )
    assert doc.data == {
        "train_batch_size": 32,
        "zero_optimization": {"stage": 2, "cpu_offload": True, "note": "two words, and more"},
        "lr": [0.0001, 0.5],
        "text": "one\ntwo",
    }
    seen = {(doc.lines.locate(each.start).line, each.what) for each in doc.deviations}
    assert {
        (1, "a comment"),
        (2, "no braces around the whole"),
        (2, "the key `train_batch_size` without quotes"),
        (2, "a missing comma"),
        (5, "the key `cpu_offload` in single quotes"),
        (6, "string without quotes"),
        (8, "a trailing comma"),
        (9, "a `'''` string"),
    } <= seen


@pytest.mark.parametrize(
    ("content", "pointer", "value", "what"),
    [
        ('{"a": 1,}', "/a", 1, ["a trailing comma"]),
        ("{'a': 'x'}", "/a", "x", ["the key `a` in single quotes", "string in single quotes"]),
        ('{"a": "x" "b": 2}', "/b", 2, ["a missing comma"]),
        ("{\n\"a\": '''\n  x\n  '''}", "/a", "x", ["a `'''` string"]),
        ('{"a": yes\n}', "/a", "yes", ["string without quotes"]),
        ('{"a": "it\\\'s"}', "/a", "it's", ["the escape `\\'`"]),
        ("", "", {}, ["no value at all"]),
        ('\ufeff{"a": 1}', "/a", 1, ["a byte order mark"]),
        ('{"a": 1١}', "/a", 11, ["digits other than 0 to 9"]),
        ('{"a": true\u00a0}', "/a", True, ["a blank that JSON doesn't have"]),
    ],
)
def test_each_departure_from_json_has_a_name(
    content: str, pointer: str, value: object, what: list[str]
) -> None:
    """What only hjson reads is read, and said to be no JSON."""
    doc = _read(content)
    assert doc.value(pointer) == value
    assert [each.what for each in doc.deviations] == what
    assert (doc.hjson_broken is None and not doc.duplicates) and not doc.json_reads


@pytest.mark.parametrize(
    ("content", "data", "json_data", "reads"),
    [
        ('{"a": Infinity}', {"a": float("inf")}, {"a": float("inf")}, False),
        ('{"a": 1e999}', {"a": float("inf")}, {"a": float("inf")}, False),
        ('{"a": -Infinity\n}', {"a": "-Infinity"}, {"a": float("-inf")}, True),
        ('{"a": Infinity,\n"b": 1}', {"a": "Infinity,", "b": 1}, {"a": float("inf"), "b": 1}, True),
    ],
)
def test_what_json_reads_otherwise_is_said(
    content: str, data: object, json_data: object, reads: bool
) -> None:
    """Infinities and NaN are JSON to Python, text or a failure to hjson: both readings are kept
    apart.
    """
    doc = _read(content)
    assert (
        doc.json_reads
        and (not doc.hjson_broken and not doc.duplicates) is reads
        and len(doc.json_only) == 1
    )
    assert doc.data == data and doc.json_data == json_data


def test_first_of_duplicate_keys_is_kept() -> None:
    """A key that is there twice is reported with both places, in nested objects too; DeepSpeed
    refuses it.
    """
    content = '{"a": {"x": 1, "x": 2},\n "b": 1, "a": {"y": 3}}'
    doc = _read(content)
    assert doc.data == {"a": {"x": 1}, "b": 1}
    assert [(each.pointer, each.first, each.second) for each in doc.duplicates] == [
        ("/a/x", content.index('"x": 1'), content.index('"x": 2')),
        ("/a", 1, content.rindex('"a"')),
    ]
    assert (doc.json_reads and doc.hjson_broken) or (doc.duplicates and not doc.has("/a/y"))


@pytest.mark.parametrize(
    ("content", "line", "column", "message"),
    [
        ('{"a": 1', 1, 8, "expected a key, but the text ends; the `{` in line 1 is not closed"),
        (
            '{"a": True, "b": 1}',
            1,
            20,
            "the string without quotes in line 1 goes on to the end of its line",
        ),
        ('{"a": 1}\nmore', 2, 1, "the document ends before this, but more text follows"),
        ('{"a" 1}', 1, 6, "`:` is missing after a key"),
        ('{"a":,}', 1, 6, "expected a value, not `,`"),
        ('{"a": "x\n"}', 1, 7, "this string is not closed on its line"),
        ('{"a": "\\q"}', 1, 8, "`\\q` is no escape: a backslash is written as `\\\\`"),
        ('{/* "a": 1}', 1, 2, "this comment is not closed"),
        ("[" * 65, 1, 65, "this is nested more than 64 deep"),
        (
            '{"a": ' + "9" * 4301 + "}",
            1,
            7,
            "this number has 4,301 digits: Python reads 4,300 at most",
        ),
    ],
)
def test_broken_texts_say_where_and_why(content: str, line: int, column: int, message: str) -> None:
    """A text that neither library reads names the place from which it can't be read, and the likely
    cause.
    """
    doc = _read(content)
    assert (doc.broken is not None and not doc.json_reads and doc.hjson_broken) or doc.duplicates
    where = doc.lines.locate(doc.broken.offset)
    assert message in doc.broken.message
    assert (where.line, where.column) == (line, column)


def test_what_comes_before_a_break_is_read() -> None:
    """Of a broken text, the values up to the break are there with their places."""
    doc = _read('{"a": {"b": 1},\n "c": ]')
    assert (
        doc.data == {"a": {"b": 1}} and doc.value("/a/b") == 1 and doc.locate("/a/b").column == 13
    )
    assert doc.value("/c", "none") == "none"


def test_places_count_lines_as_editors_do() -> None:
    """Lines and columns count from 1 over every kind of line break, and what isn't there is near
    its parent.
    """
    doc = _read('{\r\n  "a/b": {\n\t"x~": "\u2028",  "y": 1}\r}')
    assert (doc.locate("/a~1b").line, doc.locate("/a~1b").column) == (2, 10)
    assert (doc.locate_key("/a~1b").line, doc.locate_key("/a~1b").column) == (2, 3)
    assert (doc.locate("/a~1b/y").line, doc.locate("/a~1b/y").column) == (4, 10)
    missing = doc.locate("/a~1b/none/deeper")
    assert (missing.line, missing.column, missing.pointer) == (2, 10, "/a~1b/none/deeper")
    assert doc.locate_key("/a~1b/none").column == 10
    assert _read("{").locate("/x").line == 1


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(
            {"groups": [{"name": f"n{i}", "lr": 0.001, "n": i, "on": True} for i in range(40_000)]}
        ),
        '{"' + "k" * 500_000 + '":[' + "0," * 250_000 + "0]}",
        "[" * 1_000_000,
        "[" + "'''x''' " * 100_000 + "\n]",
        '"' + "\\n" * 400_000 + '"',
        "[1" + " " * 900_000 + "x",
        "/*" * 500_000,
        "{" + "a " * 400_000,
    ],
    ids=["large", "long key", "deep", "many texts", "many escapes", "blanks", "comment", "words"],
)
def test_hostile_and_large_texts_are_read_soon(content: str) -> None:
    """Two megabytes, or what is made to be slow, take a moment of the processor."""
    start = time.process_time()
    doc = _read(content)
    assert time.process_time() - start < 20
    assert doc.text.content is content
