"""The published schema of the job spec lists what the tables of frameworks and launchers hold."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import dsgen
from dsgen.job.schema import load_schema
from dsgen.json_schema import KEYWORDS, conforms
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS
from dsgen.text.source import parse
from dsgen.text.text import read_path

SCHEMA = Path(str(files("dsgen.schemas") / "job.schema.json"))
ROOT = Path(__file__).parents[1]
#: Keywords that refuse nothing, or that `if` reads.
NOTES = {"$schema", "$defs", "$comment", "title", "description", "default", "examples"}
NOTES |= {"then", "else", "patternErrorMessage", "neededToSubmit"}
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        1.0,
        1.5,
        1e300,
        10**30,
        "",
        "1",
        "x" * 5000,
        "a b",
        "-x",
        "none",
        "\n",
        [],
        [1],
        ["a"],
    ),
    *(
        ["a", "a"],
        [1, True],
        [None],
        {},
        {"a": 1},
        {"steps": 1},
        {"steps": 1, "tokens": 2},
        {"epochs": 2},
        {"1a": "x"},
    ),
    *({f"k{i}": "v" for i in range(101)}, ["x"] * 101),
)


def test_the_schema_lists_frameworks(update_golden: bool) -> None:
    """`framework` accepts the names of the table of frameworks; --update-golden writes them."""
    text = SCHEMA.read_text(encoding="utf-8")
    known = json.loads(text)["properties"]["framework"]["enum"]
    if update_golden:
        SCHEMA.write_text(
            text.replace(json.dumps(known), json.dumps(list(FRAMEWORKS))), encoding="utf-8"
        )
    else:
        assert known == list(FRAMEWORKS)


def test_every_target_of_the_schema_has_a_launcher() -> None:
    """`launch.target` accepts what there are launchers for, each under its own name."""
    targets = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"][
        "target"
    ]["enum"]
    assert [launcher.name for launcher in LAUNCHERS.values()] == targets


def test_the_schema_describes_the_keys_of_every_launcher() -> None:
    """`launch.<target>` has the keys that the launcher and what it uses read by name, and each is
    described.
    """
    package = Path(dsgen.__file__).parent
    launch = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["launch"]["properties"]
    for name in LAUNCHERS:
        folders = (package / "programs" / name, package / "programs" / "launching", package / "job")
        text = "".join(
            path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")
        )
        assert [key for key in launch[name]["properties"] if f'"{key}"' not in text] == []
        assert all(key["description"] for key in launch[name]["properties"].values())


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    if isinstance(node, dict):
        yield node
        for word, below in node.items():
            named = (
                below.values()
                if word in ("properties", "$defs")
                else below
                if word == "oneOf"
                else [below]
            )
            if word not in NOTES - {"$defs", "then", "else"} | {"enum", "dependentRequired"}:
                for one in named:
                    yield from _schemas(one)


@pytest.mark.parametrize("name", ["job", "calibration"])
def test_every_keyword_of_the_checked_schemas_is_known(name: str) -> None:
    """No keyword of a schema that input is checked by is passed over."""
    words = {word for schema in _schemas(load_schema(name)) for word in schema}
    assert words - NOTES - KEYWORDS == set()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, below in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from _places(below, (*path, key))


def _damaged(spec: Any, draw: random.Random) -> Any:
    """A spec with a value replaced, removed, or added under a key that it may have."""
    spec = copy.deepcopy(spec)
    *way, last = draw.choice([path for path in _places(spec) if path])
    parent = spec
    for key in way:
        parent = parent[key]
    kind = draw.randrange(3)
    if kind == 0 or isinstance(parent, list):
        parent[last] = draw.choice(ODD)
    elif kind == 1:
        del parent[last]
    else:
        known = [key for schema in _schemas(load_schema()) for key in schema.get("properties", ())]
        parent[draw.choice(known)] = draw.choice(ODD)
    return spec


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_conforming_is_what_jsonschema_says(path: Path) -> None:
    """Of examples, and of each with values replaced, removed and added."""
    spec, schema, draw = (
        parse(read_path(path)).data,
        load_schema(),
        random.Random(path.name),
    )
    specs = [spec, *(_damaged(spec, draw) for _ in range(30))]
    judge = Draft202012Validator(schema)
    verdicts = [judge.is_valid(one) for one in specs]
    assert verdicts[0]
    assert not all(verdicts)
    assert [conforms(one, schema, schema["$defs"]) for one in specs] == verdicts


@pytest.mark.parametrize("path", sorted(SCHEMA.parent.glob("*.json")), ids=lambda path: path.stem)
def test_no_schema_has_a_key_twice(path: Path) -> None:
    """Each key of a schema is written once: of two, readers drop the first without a word."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(names) == len({*names}), names
        return dict(pairs)

    json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
