"""Changes to JSON and HJSON texts do what they say and leave all else as it is."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.findings import Edit
from dsgen.text.hjson.edits import (
    apply_edits,
    move_member,
    remove_member,
    rename_key,
    replace_value,
    to_strict,
)
from dsgen.text.hjson.text import JsonText, read_json
from tests.needs import needs_deepspeed
from tests.text.hjson_texts import as_text, texts

JSON = """\
{
  "train_batch_size": 32,
  "fp16": {"enabled": true, "auto_cast": false},
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true,
    "offload_param": {
      "device": "cpu"
    }
  },
  "empty": {},
  "steps": 1
}
"""
HJSON = """\
# ours
train_batch_size: 32   // all GPUs
zero_optimization: {
   stage: 2
   cpu_offload: true   # old
   note: two words, and more
}
/* the optimizer
   is Adam */
optimizer: { type: "Adam", params: { lr: 1e-4, }, }
steps: 1"""


def _read(content: str) -> JsonText:
    return read_json(as_text(content))


def _lines_changed(content: str, edits: tuple[Edit, ...]) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    old, new = content.splitlines(), apply_edits(content, edits).splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return old, new


@pytest.mark.parametrize(
    ("content", "pointer", "gone", "come"),
    [
        (JSON, "/zero_optimization/cpu_offload", ['    "cpu_offload": true,'], []),
        (JSON, "/steps", ['  "empty": {},', '  "steps": 1'], ['  "empty": {}']),
        (
            JSON,
            "/fp16/enabled",
            ['  "fp16": {"enabled": true, "auto_cast": false},'],
            ['  "fp16": {"auto_cast": false},'],
        ),
        (
            JSON,
            "/fp16/auto_cast",
            ['  "fp16": {"enabled": true, "auto_cast": false},'],
            ['  "fp16": {"enabled": true},'],
        ),
        (HJSON, "/zero_optimization/cpu_offload", ["   cpu_offload: true   # old"], ["   # old"]),
        (HJSON, "/zero_optimization/note", ["   note: two words, and more"], []),
        (HJSON, "/steps", ["steps: 1"], []),
        ('{"a": [1, 2, 3]}', "/a/2", ['{"a": [1, 2, 3]}'], ['{"a": [1, 2]}']),
        ('{\n  "a": 1\n}', "/a", ['  "a": 1'], []),
        ('{\n"a": 1\n, "b": 2\n}', "/b", [', "b": 2'], [""]),
    ],
)
def test_a_member_goes_with_its_comma_and_line(
    content: str, pointer: str, gone: list[str], come: list[str]
) -> None:
    """A removed member takes its comma, or for the last the one before, and its line where it is
    alone on it.
    """
    assert _lines_changed(content, remove_member(_read(content), pointer)) == (gone, come)


@pytest.mark.parametrize(
    ("content", "arguments", "gone", "come"),
    [
        (
            JSON,
            ("/steps", "/zero_optimization", "n"),
            ["    }", "  },", '  "empty": {},', '  "steps": 1'],
            ["    },", '    "n": 1', "  },", '  "empty": {}'],
        ),
        (JSON, ("/steps", "/new", "n"), ['  "steps": 1'], ['  "new": {"n": 1}']),
        (
            JSON,
            ("/steps", "/empty", "n"),
            ['  "empty": {},', '  "steps": 1'],
            ['  "empty": {"n": 1}'],
        ),
        (
            JSON,
            ("/fp16/enabled", "/empty", "n"),
            None,
            [
                '  "fp16": {"auto_cast": false},',
                *JSON.splitlines()[3:10],
                '  "empty": {"n": true},',
            ],
        ),
        (
            HJSON,
            ("/steps", "/optimizer/params", "n"),
            ['optimizer: { type: "Adam", params: { lr: 1e-4, }, }', "steps: 1"],
            ['optimizer: { type: "Adam", params: { lr: 1e-4, n: 1 }, }'],
        ),
        (HJSON, ("/steps", "/new", "n"), ["steps: 1"], ["new: {n: 1}"]),
        (JSON, ("/steps", "", "n"), ['  "steps": 1'], ['  "n": 1']),
    ],
)
def test_a_member_moves_with_its_text(
    content: str, arguments: tuple[str, str, str], gone: list[str] | None, come: list[str]
) -> None:
    """A moved member keeps its value as written, and finds a place in the layout of its new
    parent.
    """
    old, new = _lines_changed(content, move_member(_read(content), *arguments))
    assert new == come and old == (gone or old)


def test_keys_and_values_are_replaced_in_place() -> None:
    """Only the key, or only the value, changes; a key without quotes stays so where its new name
    allows.
    """
    assert _lines_changed(HJSON, rename_key(_read(HJSON), "/steps", "n")) == (
        ["steps: 1"],
        ["n: 1"],
    )
    assert _lines_changed(HJSON, rename_key(_read(HJSON), "/steps", "n x")) == (
        ["steps: 1"],
        ['"n x": 1'],
    )
    assert _lines_changed(JSON, rename_key(_read(JSON), "/steps", "n")) == (
        ['  "steps": 1'],
        ['  "n": 1'],
    )
    before, after = (
        "train_batch_size: 32   // all GPUs",
        "train_batch_size: [1, null]   // all GPUs",
    )
    assert _lines_changed(HJSON, replace_value(_read(HJSON), "/train_batch_size", [1, None])) == (
        [before],
        [after],
    )


def test_hjson_becomes_strict_json() -> None:
    """Comments go, quotes, commas and braces come; order and lines stay."""
    content = '{\n  a: 1\n  \'b\': [two words\n  ],\n  "c": {"d": 1e-4,},\n}'
    strict = '{\n  "a": 1,\n  "b": ["two words"\n  ],\n  "c": {"d": 1e-4}\n}'
    assert apply_edits(content, to_strict(_read(content))) == strict
    assert json.loads(apply_edits(HJSON, to_strict(_read(HJSON)))) == _read(HJSON).data
    assert to_strict(_read(JSON)) == ()


@pytest.mark.parametrize(
    ("content", "edits"),
    [
        (JSON, lambda doc: rename_key(doc, "/steps", "fp16")),
        (JSON, lambda doc: rename_key(doc, "/none", "n")),
        (JSON, lambda doc: rename_key(doc, "", "n")),
        (JSON, lambda doc: remove_member(doc, "")),
        (JSON, lambda doc: remove_member(doc, "/none")),
        (JSON, lambda doc: replace_value(doc, "/steps", float("nan"))),
        (
            JSON,
            lambda doc: move_member(
                doc, "/zero_optimization", "/zero_optimization/offload_param", "n"
            ),
        ),
        (JSON, lambda doc: move_member(doc, "/steps", "/fp16", "enabled")),
        (JSON, lambda doc: move_member(doc, "/steps", "/train_batch_size", "n")),
        (JSON, lambda doc: move_member(doc, "/steps", "/new/deeper", "n")),
        (HJSON, lambda doc: move_member(doc, "/optimizer/type", "", "n")),
        ('{"a": "x" "b": 2}', lambda doc: replace_value(doc, "/a", 5)),
        (
            "{\n  a: '''\n       x\n         y\n       '''\n}",
            lambda doc: rename_key(doc, "/a", "longer"),
        ),
        ('{"a": 1, "a": 2, "b": 3}', lambda doc: remove_member(doc, "/a")),
        ('{"a": 1, "a": 2, "b": {"c": 3}}', lambda doc: move_member(doc, "/b/c", "", "d")),
        ('{"a": 1, "b": }', lambda doc: remove_member(doc, "/a")),
        ("{a: 1, b: }", to_strict),
        ("{a: 1, a: 2}", to_strict),
    ],
)
def test_there_are_no_edits_where_none_is_safe(content: str, edits: Any) -> None:
    """A taken name, a missing value, a key that is there twice, a broken text, or one that reads
    otherwise.
    """
    assert edits(_read(content)) == ()


def test_overlapping_edits_are_refused() -> None:
    """Two edits of the same characters, or one beyond the text, raise ValueError; edits that touch
    are made.
    """

    def edit(start: int, end: int, text: str) -> Edit:
        return Edit(path="x", start=start, end=end, replacement=text)

    assert apply_edits("abcd", [edit(2, 3, "y"), edit(1, 2, "x"), edit(4, 4, "!")]) == "axyd!"
    for wrong in (
        [edit(0, 2, ""), edit(1, 3, "")],
        [edit(3, 5, "")],
        [edit(2, 1, "")],
        [edit(-1, 1, "")],
    ):
        with pytest.raises(ValueError, match="overlaps"):
            apply_edits("abcd", wrong)


MEMBERS = st.dictionaries(
    st.sampled_from("abcd/~"),
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from("abc/~"), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    min_size=1,
    max_size=5,
)


def _change(rng: random.Random, doc: JsonText) -> tuple[tuple[Edit, ...], Any]:
    """Some change of a document: its edits, and the data that it is to give."""
    data: Any = copy.deepcopy(doc.data)
    pointer = rng.choice([pointer for pointer in doc.spans if pointer] or [""])
    parent, key = (
        pointer.rpartition("/")[0],
        pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~"),
    )
    holder = _at(data, parent) if pointer else None
    place: Any = int(key) if isinstance(holder, list) else key
    kind = rng.choice(["rename", "remove", "replace", "move", "strict"]) if pointer else "strict"
    name: str = rng.choice(["new", "n w", "é", "a", "", "/~"])
    if kind == "rename":
        edits = rename_key(doc, pointer, name)
        if edits:
            holder[name] = holder.pop(key)
    elif kind == "remove":
        edits = remove_member(doc, pointer)
        if edits:
            del holder[place]
    elif kind == "replace":
        value = rng.choice([5, True, None, "x y", [1], {"a": "#"}, 1e-5, '\u2028"', -1])
        edits = replace_value(doc, pointer, value)
        holder[place] = value
    elif kind == "move":
        target = rng.choice([*doc.spans, "", "/zz"])
        edits = move_member(doc, pointer, target, name)
        if edits:
            into = _at(data, target) if doc.has(target) else data.setdefault("zz", {})
            into[name] = holder.pop(key)
    else:
        edits = to_strict(doc)
    return edits, data


def _at(data: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        data = data[
            int(part) if isinstance(data, list) else part.replace("~1", "/").replace("~0", "~")
        ]
    return data


def _hjson_reads(content: str, data: Any) -> bool:
    """Whether the real hjson makes `data` of `content`; it has ints for whole floats, and no order
    is asked.
    """
    import hjson

    return bool(hjson.loads(content.replace("\r\n", "\n").replace("\r", "\n")) == data)


@needs_deepspeed
@given(
    data=MEMBERS,
    indent=st.sampled_from([None, 2, "\t"]),
    crlf=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
def test_changed_json_reads_back_as_meant(
    data: Any, indent: Any, crlf: bool, rng: random.Random
) -> None:
    """Any change of any strict JSON gives strict JSON with exactly the data meant, to json and to
    hjson.
    """
    content = json.dumps(data, indent=indent)
    doc = _read(content.replace("\n", "\r\n") if crlf else content)
    edits, meant = _change(rng, doc)
    changed = apply_edits(doc.text.content, edits)
    if edits:
        assert json.loads(changed) == meant, changed
        assert _hjson_reads(changed, meant), changed
        assert not crlf or "\n" not in changed.replace("\r\n", "")


@needs_deepspeed
@pytest.mark.parametrize("seed", range(3))
def test_changed_hjson_reads_back_as_meant(seed: int) -> None:
    """Any change of any HJSON gives HJSON with exactly the data meant, or there is none."""
    rng = random.Random(seed)
    changed = 0
    for content in texts(seed + 100, 3000):
        doc = _read(content)
        if doc.hjson_broken or doc.duplicates or doc.json_only:
            continue
        edits, meant = _change(rng, doc)
        if edits:
            changed += 1
            result = apply_edits(content, edits)
            assert _hjson_reads(result, meant), (content, result, meant)
            if doc.json_reads:
                assert json.loads(result) == meant
    assert changed > 500


@needs_deepspeed
def test_every_hjson_can_become_strict_json() -> None:
    """What DeepSpeed reads, however written, becomes JSON that strict readers take for the same
    data.
    """
    for content in texts(7, 4000):
        doc = _read(content)
        if (doc.hjson_broken is None and not doc.duplicates) and not doc.json_reads:
            assert json.loads(apply_edits(content, to_strict(doc))) == doc.data, content
