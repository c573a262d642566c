"""The tables of DeepSpeed's keys, and the verdicts on values against pydantic's own."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from dsgen.programs.deepspeed.schema import (
    Key,
    first_version_of,
    last_version_of,
    load_schema,
    mismatch,
    table_for,
    versions,
)
from dsgen.shape import Type
from tests.needs import needs_deepspeed

REPOSITORY = Path(__file__).parents[2]
TABLES = REPOSITORY / "generator" / "programs" / "deepspeed" / "deepspeed_keys"


@needs_deepspeed
@pytest.mark.integration
def test_the_installed_release_gives_its_table(tmp_path: Path) -> None:
    """Reading the installed DeepSpeed again gives the same bytes as the table that is kept."""
    from importlib.metadata import version

    installed = version("deepspeed")
    script = REPOSITORY / "scripts" / "deepspeed_keys.py"
    command = [sys.executable, str(script), installed, "--installed", "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / f"{installed}.json").read_bytes() == (
        TABLES / f"{installed}.json"
    ).read_bytes()


@pytest.mark.parametrize("version", versions(), ids=str)
def test_every_table_loads(version: tuple[int, ...]) -> None:
    """Every table can be read whole, and each key can be found by each of its names."""
    schema = load_schema(version)
    assert schema.version == version
    for pointer in schema.pointers:
        section = schema.section(pointer)
        assert section is not None
        for name, key in section.keys.items():
            assert name in (key.name, key.alias)
            assert key.type.section is None or key.type.section.startswith("/")


def test_the_nearest_table_stands_for_a_release() -> None:
    """A release uses the table at or below it of its minor version, else the nearest there is."""
    assert table_for((0, 19, 8)) == (0, 19, 8)
    assert table_for((0, 19, 1)) == (0, 19, 0)
    assert table_for((0, 16, 4)) == (0, 16, 9)
    assert table_for((0, 20, 1)) == (0, 19, 8)
    assert table_for((0, 9)) == (0, 12, 6)


def test_keys_come_and_go() -> None:
    """The first and the last release that knows a key are told, and none for a key that never
    was.
    """
    assert first_version_of("/zero_optimization", "zenflow") == (0, 17, 6)
    assert last_version_of("/zero_optimization", "mics_shard_size") == (0, 19, 6)
    assert first_version_of("/zero_optimization", "overlap_com") is None


def test_a_default_changed() -> None:
    """Gradient clipping is off by default in 0.16 and 1.0 in 0.19."""
    old, new = (load_schema(version).key("/gradient_clipping") for version in ("0.16.9", "0.19.8"))
    assert old is not None and old.default == 0.0
    assert new is not None and new.default == 1.0


def test_aliases_and_replacements_are_known() -> None:
    """The stage-3 names are aliases of fields, and a deprecated key names what replaces it."""
    zero = load_schema("0.19.8").section("/zero_optimization")
    assert zero is not None
    assert zero.keys["stage3_max_live_parameters"] is zero.keys["max_live_parameters"]
    assert zero.keys["cpu_offload"].deprecated is not None
    assert zero.keys["cpu_offload"].deprecated.by == "offload_optimizer"
    assert "cpu_offload" not in zero.names


def test_removed_blocks_are_known() -> None:
    """0.19.8 refuses what it removed, and 0.19.6 nothing."""
    assert "elasticity" in load_schema("0.19.8").removed[""]
    assert not load_schema("0.19.6").removed


class _Stage(int, Enum):
    a, b, c, d = 0, 1, 2, 3


class _Device(str, Enum):
    none, cpu = "none", "cpu"


TYPES: dict[str, tuple[Any, Type]] = {
    "bool": (bool, Type(name="bool")),
    "int": (int, Type(name="int")),
    "float": (float, Type(name="float")),
    "str": (str, Type(name="str")),
    "path": (Path, Type(name="path")),
    "list": (list, Type(name="list")),
    "list of str": (list[str], Type(name="list", of=(Type(name="str"),))),
    "dict": (dict, Type(name="dict")),
    "int enum": (_Stage, Type(name="enum", values=(0, 1, 2, 3), of=(Type(name="int"),))),
    "str enum": (_Device, Type(name="enum", values=("cpu", "none"), of=(Type(name="str"),))),
    "literal": (Literal["z1", "cpu"], Type(name="literal", values=("z1", "cpu"))),
    "union": (Union[str, int], Type(name="union", of=(Type(name="str"), Type(name="int")))),  # noqa: UP007
}
NUMBERS: list[Any] = [
    0,
    1,
    2,
    3,
    4,
    -1,
    8,
    2**63,
    2**64,
    10**30,
    10**400,
    0.0,
    1.0,
    2.0,
    1.5,
    -0.0,
    1e10,
    1e18,
]
NUMBERS += [
    -1e18,
    9.3e18,
    1e19,
    1e30,
    15099494.4,
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    False,
    None,
]
WHOLE_TEXTS = [
    "",
    "8",
    " 8 ",
    "8.0",
    "8.00",
    "8.",
    "1_000",
    "1__0",
    "_1",
    "1_",
    "+8",
    "-8",
    "++8",
    "00008",
    "٣",
    "１",
    "-",
]
WHOLE_TEXTS += [
    "8\n",
    "\u00a08",
    "1,000",
    "9" * 30,
    "9" * 5000,
    "1" * 400 + ".0",
    "0x10",
    "0b1",
    " 3 ",
    "3.0",
    "0_8",
]
OTHER_TEXTS = [
    "8.5",
    "1e3",
    "1E3",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "1e-3",
    ".5",
    "5.",
    "1_0.5",
    "1e400",
    "1e5_0",
]
OTHER_TEXTS += [
    "e5",
    "1e",
    "true",
    " true ",
    "TRUE",
    "yes",
    "Y",
    "on",
    "OFF",
    "t",
    "f",
    "n",
    "no",
    "0",
    "1",
    "2",
    "00",
]
OTHER_TEXTS += ["cpu", "CPU", "none", "auto", "z1", "ZERO_STAGE"]
VALUES = [*NUMBERS, *WHOLE_TEXTS, *OTHER_TEXTS, [], ["a"], [1], [["a", 1]], [None], {}, {"a": 1}]


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
@pytest.mark.parametrize("name", TYPES)
def test_verdicts_are_those_of_pydantic(name: str, optional: bool, generation: int) -> None:
    """For every value and type, ours is the verdict of the pydantic that DeepSpeed's models are
    built on.
    """
    pytest.importorskip("pydantic")
    hint, kind = TYPES[name]
    takes = _takes(Optional[hint] if optional else hint, generation)  # noqa: UP045
    key = Key(name="x", type=kind, optional=optional)
    ours = [mismatch(value, key, pydantic=generation) is None for value in VALUES]
    assert {
        _short(value) for value, taken in zip(VALUES, ours, strict=True) if taken != takes(value)
    } == set()


@pytest.mark.parametrize(
    "bounds", [{"gt": 0}, {"ge": 0}, {"ge": 0.0, "le": 1.0}, {"gt": 0.0, "lt": 1.0}], ids=str
)
@pytest.mark.parametrize("name", ["int", "float"])
def test_bounds_are_those_of_pydantic(name: str, bounds: dict[str, float]) -> None:
    """For every value and bound, ours is pydantic 2's verdict."""
    from typing import Annotated

    pydantic = pytest.importorskip("pydantic")
    hint, kind = TYPES[name]
    takes = _takes(Annotated[hint, pydantic.Field(**bounds)], 2)
    key = Key(name="x", type=kind, **bounds)  # type: ignore[arg-type]
    wrong = {_short(value) for value in VALUES if (mismatch(value, key) is None) != takes(value)}
    assert wrong == set()


def test_a_mismatch_says_what_would_pass() -> None:
    """The reason names the type, its choices and its bounds."""
    zero = load_schema("0.19.8").section("/zero_optimization")
    assert zero is not None
    stage, bucket = mismatch(4, zero.keys["stage"]), mismatch(0, zero.keys["reduce_bucket_size"])
    assert stage is not None and stage.expected == "one of 0, 1, 2, 3"
    assert bucket is not None and bucket.expected == "an integer greater than 0"


def _takes(hint: Any, generation: int) -> Any:
    if generation == 1:
        from pydantic.v1 import create_model

        model: Any = create_model("Model", x=(hint, ...))
        validate = lambda value: model(x=value)  # noqa: E731
    else:
        from pydantic import TypeAdapter

        validate = TypeAdapter(hint).validate_python

    def takes(value: Any) -> bool:
        try:
            validate(value)
        except (ValueError, OverflowError):
            return False
        return True

    return takes


def _short(value: Any) -> str:
    try:
        return json.dumps(value)[:60]
    except ValueError:  # an int too long to be written
        return "a long int"
