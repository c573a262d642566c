"""Views of documents answer the same four questions."""

from __future__ import annotations

import pytest

from dsgen.places import ValueKind, Values
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.trainer.training_arguments import from_file
from dsgen.text.document import YamlDocument, read_yaml
from dsgen.text.hjson.text import read_json
from dsgen.text.text import text_of


@pytest.mark.parametrize(
    ("reader", "name", "value", "kind", "line"),
    [
        (
            DsConfig(json=read_json(text_of('{\n"a": {"b": 1.5}}', "ds.json"))),
            "/a/b",
            1.5,
            "float",
            2,
        ),
        (read_json(text_of('{\n"a": null}', "ds.json")), "/a", None, "null", 2),
        (
            YamlDocument(source=read_yaml(text_of("a:\n- b\n- true\n", "a.yaml"))),
            "a/1",
            True,
            "bool",
            3,
        ),
        (from_file("a.yaml", read_yaml(text_of("x: 1\nseed: 7\n", "a.yaml"))), "seed", 7, "int", 2),
    ],
    ids=["config", "json", "yaml", "arguments"],
)
def test_every_view_has_value_presence_type_and_place(
    reader: Values, name: str, value: object, kind: ValueKind, line: int
) -> None:
    """What is written is found with its type and line; what is not has the default, no type, and a
    place.
    """
    assert (reader.value(name, "default"), reader.has(name), reader.kind(name)) == (
        value,
        True,
        kind,
    )
    assert reader.locate(name).line == line
    absent = f"{name}_absent"
    assert (reader.value(absent, "default"), reader.has(absent), reader.kind(absent)) == (
        "default",
        False,
        None,
    )
    assert reader.locate(absent).path == reader.locate(name).path
