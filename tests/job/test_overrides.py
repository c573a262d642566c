"""Values put over the spec's by flags."""

from __future__ import annotations

import io
from typing import Any

import pytest

from dsgen.findings import Flag, InvalidJob
from dsgen.job.load import load_with_findings
from dsgen.job.overrides import parse_value
from dsgen.programs.frameworks import FRAMEWORKS

TEXT = """\
model: gpt3-175b
cluster: azure/standard_nd96amsr_a100_v4
nodes: 128
training:
  global_batch: 1536
  duration: {tokens: 300B}
layout:
  tensor: 8
launch:
  environment: {A: 1e-4}
"""


def job(**overrides: Any) -> Any:
    """The job with overrides; two underscores stand for a dot."""
    return load_with_findings(
        io.StringIO(TEXT),
        FRAMEWORKS,
        overrides={key.replace("__", "."): value for key, value in overrides.items()},
    )[0]


def test_an_override_goes_over_the_file() -> None:
    """Flags change values, add them, and make the mappings on the way."""
    changed = job(
        layout__tensor="4",
        layout__recompute="full",
        memory__headroom=0.1,
        launch__slurm__partition="gpu",
    )
    assert (changed.pins.tensor, changed.pins.recompute, changed.headroom) == (4, "full", 0.1)
    assert changed.launch.options == {"partition": "gpu"}


def test_gpus_and_nodes_replace_each_other() -> None:
    """`--gpus` takes the file's nodes away, and a duration in steps its tokens."""
    changed = job(gpus=64, training__duration__steps=10)
    assert (changed.gpus, changed.training.duration_tokens) == (64, 10 * 1536 * 2048)
    assert changed.origin.locate("/nodes").line is None


def test_null_takes_a_key_out() -> None:
    """An override with no value unpins."""
    assert job(layout__tensor="null").pins.tensor is None
    assert job(layout__tensor=None).pins.tensor is None


def test_text_stays_text_where_text_is_taken() -> None:
    """A key that takes text gets it as it was given; others are read as YAML."""
    changed = job(
        name="0123",
        deepspeed_version="0.10",
        launch__environment__B="1e-4",
        launch__arguments="[a, b]",
    )
    assert (changed.name, changed.deepspeed_version) == ("0123", (0, 10))
    assert changed.launch.environment == {"A": "1e-4", "B": "1e-4"}
    assert changed.launch.arguments == ("a", "b")
    assert job(training__global_batch="{tokens: 4194304}").training.global_batch == 2048


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ({"gpus": "1k"}, "write the number: `gpus: 1024`"),
        ({"training.global_batch": "2K"}, "write the number: `global_batch: 2048`"),
        ({"launch.target": "k8s"}, "did you mean `kubernetes`?"),
        ({"launch.target": "kube"}, "did you mean `kubernetes`?"),
        ({"framework": "deepspede"}, "did you mean `deepspeed`?"),
        ({"layout.recompute": "all"}, None),
    ],
)
def test_hints_name_what_is_near(overrides: dict[str, str], hint: str | None) -> None:
    """A hint gives the number that was meant, or the nearest word; where none is near, the message
    lists all.
    """
    with pytest.raises(InvalidJob) as refused:
        load_with_findings(
            io.StringIO(TEXT.replace("nodes: 128\n", "")),
            FRAMEWORKS,
            overrides={"gpus": 1024, **overrides},
        )
    (finding,) = refused.value.findings
    assert finding.hint == hint and "; expected " in finding.message


@pytest.mark.parametrize(
    ("overrides", "pointer", "rule"),
    [
        ({"gpus": 8, "nodes": 1}, "/nodes", "SPEC010"),
        ({"gpus": "many"}, "/gpus", "SPEC009"),
        ({"layout.tensr": "3"}, "/layout/tensr", "SPEC006"),
        ({"model.hidden_size": "3"}, "/model/hidden_size", "SPEC017"),
        ({"layout..tensor": "3"}, "/layout//tensor", "SPEC017"),
        ({"model": "gpt9"}, "/model", "SPEC011"),
        ({"launch.arguments.0": "a"}, "/launch/arguments", "SPEC008"),
        ({"name": "a\x1b[0m"}, "/name", "SPEC014"),
        ({"name": object()}, "/name", "SPEC008"),
    ],
)
def test_a_bad_override_is_located_at_the_flags(
    overrides: dict[str, object], pointer: str, rule: str
) -> None:
    """What is wrong with a flag's value is a finding at `<flags>` that names the key."""
    with pytest.raises(InvalidJob) as caught:
        load_with_findings(io.StringIO(TEXT), FRAMEWORKS, overrides=overrides)
    found = [
        (finding.where.path, finding.where.pointer, finding.rule)
        for finding in caught.value.findings
    ]
    assert found == [("<flags>", pointer, rule)]


def test_other_places_stay() -> None:
    """Values that are not overridden keep their lines."""
    origin = job(layout__zero_stage=1).origin
    assert origin.locate("/layout/tensor").line == 8
    assert origin.locate("/layout/zero_stage").path == "<flags>"


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("", None), ("no", "no"), ("[a, 1]", ["a", 1]), ("a: [", "a: ["), ("\0", "\0")],
)
def test_values_are_read_as_yaml(text: str, value: object) -> None:
    """What is YAML is read, what is not is text."""
    assert parse_value(text) == ("" if value is None else value)


def test_a_key_that_may_be_a_list_reads_one() -> None:
    """`--set data.path=[...]` is a list of weights and paths, and a path alone is text."""
    assert job(data__path="[0.3, /data/a, 0.7, /data/b]").data.path == (
        "0.3",
        "/data/a",
        "0.7",
        "/data/b",
    )
    assert job(data__path="/data/a b").data.path == ("/data/a b",)


@pytest.mark.parametrize("written", ['"run 1"', "'run 1'"])
def test_a_flag_loses_the_quotes_of_yaml(written: str) -> None:
    """Text that a flag quotes is the text within, as in the file; text from Python stays."""
    assert job(name=Flag(written, "--set name")).name == "run 1"
    assert job(launch__environment={"B": written}).launch.environment["B"] == written
