"""Questions on the command line: `plan --compare`, `plan --spares`, `sweep`."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from dsgen.cli import commands
from dsgen.cli.printing import ExitStatus
from dsgen.cli.sweep_text import HEIGHT, WIDTH, chart
from tests.cli.running import run

SPEC = """\
name: small
framework: megatron-lm
model: llama-2-7b
cluster:
  accelerator: h100
  accelerators_per_node: 8
  network_gbits_per_s_per_node: 3200
  price_per_node_hour: 80
gpus: 64
training: {sequence_length: 4096, global_batch: 480, precision: bf16, duration: {tokens: 100e9}}
"""


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder with one spec."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC)
    return tmp_path


def valid(document: Any, name: str) -> None:
    """Check a document against a published schema."""
    schema = json.loads(
        files("dsgen.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    )
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)


def test_comparisons_are_printed_in_order() -> None:
    """Each question has its answer, and all plans are in one table by cause."""
    result = run(
        "plan",
        "job.yaml",
        "--compare",
        "tensor=8",
        "--compare",
        "tensor=3",
        "--compare",
        "layout.pipeline=4",
    )
    assert result.exit_code == ExitStatus.OK
    text = result.stdout
    assert (
        text.index("tensor 8: ")
        < text.index("tensor 3: not allowed: ")
        < text.index("pipeline 4: ")
    )
    assert "hint: use tensor: 1" in text
    for row in ("TP", "step time", "  compute", "MFU", "memory", "  activations"):
        assert f"\n{row}" in text


def test_parts_of_a_short_step_are_in_milliseconds() -> None:
    """Parts that differ by less than a hundredth of a second show, in the unit of the steps."""
    job = ("--gpus", "8", "--cluster", "8xh100", "--model", "llama-3.2-1b")
    sizes = ("--global-batch", "8", "--sequence-length", "2048")
    result = run("plan", *job, *sizes, "--compare", "zero=3")
    table = result.stdout.partition("\nstep time")[2]
    assert re.search(r"^  data +[0-9.]+ ms +[0-9.]+ ms +\+[0-9.]+ ms$", table, re.MULTILINE)
    assert re.search(r"data parallelism \+[0-9.]+ ms", result.stdout)


def test_comparisons_and_spares_keep_to_the_schema() -> None:
    """`--format json` adds both to the plans, as the published schema describes them."""
    questions = (
        "--compare",
        "tensor=8",
        "--compare",
        "tensor=3",
        "--compare",
        "recompute=full",
        "--spares",
    )
    document = json.loads(
        run("plan", "job.yaml", *questions, "--format", "json", "--top", "1").stdout
    )
    valid(document, "plan")
    assert [answer["asked"] for answer in document["comparisons"]] == [
        {"tensor": 8},
        {"tensor": 3},
        {"recompute": "full"},
    ]
    forbidden = document["comparisons"][1]
    assert forbidden["verdict"] == "forbidden" and forbidden["plan"] is None
    slower = document["comparisons"][0]
    total = slower["plan"]["step_time"]["total_s"] - document["plans"][0]["step_time"]["total_s"]
    assert sum(cause["difference"] for cause in slower["step_time"]) == pytest.approx(total)
    assert document["spares"]["nodes"] == 8 and document["spares"]["counts"]


def test_a_job_without_a_plan_is_asked_too() -> None:
    """Where nothing fits, the obstacle and the answers are printed, and the status says so."""
    tight = (
        "job.yaml",
        "--model",
        "llama-3.1-405b",
        "--gpus",
        "8",
        "--compare",
        "tensor=8,pipeline=1",
    )
    result = run("plan", *tight)
    assert result.exit_code == ExitStatus.INFEASIBLE
    assert (
        "MEM001: The fullest stage fits" in result.stdout
        and "tensor 8, pipeline 1: does not fit" in result.stdout
    )
    document = json.loads(run("plan", *tight, "--format", "json").stdout)
    valid(document, "plan")
    assert document["comparisons"][0]["verdict"] == "too large"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensr=8", "did you mean `tensor`?"),
        ("tensor=0", "`layout.tensor` is 0; expected 1 to 1,048,576"),
        ("recompute=ful", "did you mean `full`?"),
        ("tensor=many,zero_stag=1", "did you mean `zero_stage`?"),
        ("tensor", "'tensor' is no row and no KEY=VALUE: name chosen"),
        ("99", "'99' is no row: name chosen"),
        ("kernels=fused", "training.kernels is no key of layout; plan with --set training.kernels"),
        ("tensor=8,gpus=64", "gpus is no key of layout; plan with --set gpus=64"),
        ("tensor=", "'tensor=' is not KEY=VALUE"),
        ("layout=null", "layout has keys: name one or more, such as micro_batch=null"),
        ("tensor=1,tensor=2", "tensor is set twice"),
    ],
)
def test_wrong_questions_are_usage_errors(text: str, expected: str) -> None:
    """Unknown keys and values are refused before anything is planned, with what was probably
    meant.
    """
    result = run("plan", "job.yaml", "--compare", text)
    assert result.exit_code == ExitStatus.USAGE
    assert expected in result.stderr and not result.stdout


def test_a_hint_is_given_once() -> None:
    """Rules that a question breaks in one way have one hint."""
    hints = [
        line
        for line in run("plan", "--gpus", "128", "--compare", "tensor=7").stdout.splitlines()
        if "hint" in line
    ]
    assert hints and len(hints) == len(set(hints))


def test_a_sweep_marks_what_no_run_is_like() -> None:
    """A point whose layout no measured run is like says so in its row."""
    assert "extrapolated" in run("sweep", "gpus=32").stdout
    assert "extrapolated" not in run("sweep", "gpus=768").stdout


def test_a_sweep_without_a_key_is_over_gpus() -> None:
    """From half of the job's GPUs to twice; or over those of a list or range."""
    counts = {
        document: json.loads(run("sweep", *document, "--format", "json").stdout)
        for document in ((), ("--gpus", "64,256"))
    }
    values = {
        document: [point["values"]["gpus"] for point in each["points"]]
        for document, each in counts.items()
    }
    assert (values[()][0], values[()][-1]) == (512, 2048)
    assert values["--gpus", "64,256"] == [64, 256]


def test_an_estimate_without_a_layout_is_of_the_best_plan() -> None:
    """`dsgen estimate` without layout keys estimates what `dsgen plan` chooses; with one, that
    layout.
    """
    best = json.loads(run("plan", "--top", "1", "--format", "json").stdout)["plans"][0]
    assert json.loads(run("estimate", "--format", "json").stdout)["layout"] == best["layout"]
    assert (
        json.loads(run("estimate", "--set", "layout.tensor=2", "--format", "json").stdout)[
            "layout"
        ]["tensor"]
        == 2
    )


def test_questions_have_no_csv_form() -> None:
    """`--format csv` with a question is refused."""
    assert run("plan", "job.yaml", "--spares", "--format", "csv").exit_code == ExitStatus.USAGE


def test_sweep_prints_a_row_per_value_and_a_curve() -> None:
    """The table has every value, those without a plan with the rule, and the curve its axis."""
    result = run("sweep", "job.yaml", "gpus=8..64:8")
    assert result.exit_code == ExitStatus.OK
    rows = [line.split() for line in result.stdout.splitlines()]
    head = next(at for at, row in enumerate(rows) if row[:2] == ["gpus", "DP"])
    assert [row[0] for row in rows[head + 1 : head + 9]] == [str(n) for n in range(8, 72, 8)]
    assert "GPU-hours" in result.stdout and "price" in result.stdout
    assert "\ndays\n" in result.stdout and " gpus" in result.stdout


def test_sweep_names_the_smallest_within_a_time() -> None:
    """`--within` prints the smallest count with its range; none: the nearest, and another
    status.
    """
    result = run("sweep", "job.yaml", "gpus=8..128", "--within", "10d")
    assert result.exit_code == ExitStatus.OK
    assert re.match(
        r"Smallest\s+gpus \d+: [\d.]+ days .*; trains\s+within\s+10\s+days\n", result.stdout
    )
    none = run("sweep", "job.yaml", "gpus=8..16", "--within", "1h")
    assert none.exit_code == ExitStatus.INFEASIBLE
    assert none.stdout.startswith("Smallest  none trains within 60 minutes; nearest: gpus 16: ")


def test_sweep_says_smallest_of_sizes_alone() -> None:
    """Of batches, the smallest and the cheapest are named; of words, which have no smallest, the
    cheapest, in whatever order they are listed.
    """
    batches = run("sweep", "job.yaml", "global_batch=64,512", "--within", "60d").stdout
    assert re.search(r"^Smallest +global_batch 64: ", batches)
    assert re.search(r"^Cheapest +global_batch 512: ", batches, re.MULTILINE)
    words = [
        run("sweep", "job.yaml", f"precision={values}", "--within", "60d").stdout
        for values in ("bf16,fp8", "fp8,bf16")
    ]
    assert all(re.match(r"Cheapest +precision fp8: ", text) for text in words)
    assert not any("Smallest" in text for text in words)


def test_sweep_says_once_that_counts_do_not_divide_the_batch() -> None:
    """Counts that are slower than a smaller one and don't divide the batch are counted below the
    table; where all divide it, nothing is said.
    """
    note = "1 of 3 plans is slower than one on fewer GPUs, with GPUs that don't divide global_batch"
    uneven = run("sweep", "job.yaml", "gpus=64,72,128", "--global-batch", "512").stdout
    assert " ".join(uneven.split()).count(f"{note} 512; ") == 1
    even = run("sweep", "job.yaml", "gpus=64,72,128", "--global-batch", "1152").stdout
    assert "divide" not in even


def test_sweep_of_a_range_names_what_it_leaves_out() -> None:
    """Counts between those planned are named below the table, with a range that has them all; the
    range has them, and a list leaves out nothing.
    """
    said = " ".join(run("sweep", "job.yaml", "nodes=16..19").stdout.split())
    assert "nodes: 2 counts (17, 19) of the range not planned: " in said
    assert "; nodes=16..19:1 has all" in said
    for full in ("nodes=16..19:1", "nodes=16,18", "nodes=8..12"):
        assert "not planned" not in run("sweep", "job.yaml", full).stdout


@pytest.mark.parametrize("price", ["1e9", "$1,000M", "1 B"])
def test_sweep_names_the_smallest_for_a_price(price: str) -> None:
    """`--at-most` holds the price of the whole run, as one writes it."""
    document = json.loads(
        run("sweep", "job.yaml", "gpus=8,64", "--at-most", price, "--format", "json").stdout
    )
    valid(document, "sweep")
    assert document["smallest"] == {"gpus": 8} and document["goal"] == {
        "within_s": None,
        "at_most": 1e9,
    }


def test_sweep_documents_keep_to_the_schema() -> None:
    """Points with and without a plan are valid, and both keys are in each."""
    answer = run(
        "sweep", "job.yaml", "tensor=1,3", "training.precision=bf16,fp8", "--format", "json"
    )
    document = json.loads(answer.stdout)
    valid(document, "sweep")
    assert document["keys"] == ["layout.tensor", "training.precision"]
    assert [point["rule"] is None for point in document["points"]] == [True, True, False, False]


def test_sweep_as_csv_has_one_line_per_point() -> None:
    """The values come first, and a point without a plan keeps its own."""
    rows = list(
        csv.DictReader(
            io.StringIO(run("sweep", "job.yaml", "gpus=8,12,16", "--format", "csv").stdout)
        )
    )
    assert [row["gpus"] for row in rows] == ["8", "12", "16"]
    assert [row["rule"] for row in rows] == ["", "NODE003", ""]
    assert rows[0]["tensor"] and rows[0]["gpu_hours"]


def test_sweep_reads_standard_input_once() -> None:
    """Every point is planned from the one text."""
    result = CliRunner().invoke(
        commands, ["sweep", "-", "gpus=8,16", "--format", "json"], input=SPEC
    )
    assert result.exit_code == ExitStatus.OK
    assert all(point["layout"] for point in json.loads(result.stdout)["points"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("gpus=8..64", "--within", "30"), "'30' is not a time"),
        (("gpus=64..8",), "write 8..64"),
        (("gpus=8..8192:8",), "more than 200 values"),
        (("gpus=8..1024:8", "tensor=1,2"), "256 points; at most 200"),
        (("tensr=1,2",), "did you mean 'tensor'?"),
        (("tensor=1..",), "is not KEY=VALUES; write tensor=A..B"),
        (("tensor=1,,2",), "is not KEY=VALUES"),
        (("gpus=8,16", "tensor=1", "pipeline=1"), "3 keys to sweep"),
        (("gpus=8,16", "gpus=8"), "gpus is given twice"),
        (("gpus=8,16", "other.yaml"), "unexpected argument 'other.yaml'"),
        (("memory.headroom=0..0.1",), "the range never ends"),
        (
            ("gpus=8,16", "--within", "3d", "--set", "training.duration=null"),
            "training.duration is missing",
        ),
        (
            ("gpus=8,16", "--at-most", "9", "--set", "cluster.price_per_node_hour=null"),
            "add --set cluster.price_per_node_hour=",
        ),
        (("gpus=8,16", "--at-most", "much"), "write 2500000, 2.5M or 800k"),
        (("gpus=8,16", "--at-most", "0"), "is not a price above 0"),
    ],
)
def test_wrong_sweeps_are_usage_errors(arguments: tuple[str, ...], expected: str) -> None:
    """What can't be swept is refused with what would do, before anything is planned."""
    result = run("sweep", "job.yaml", *arguments)
    assert result.exit_code == ExitStatus.USAGE, result.stdout
    assert expected in result.stderr


def test_a_wrong_key_below_a_section_is_a_finding() -> None:
    """A key that the spec doesn't know is reported as in a spec, once."""
    result = run("sweep", "job.yaml", "training.global_bach=8,16")
    assert result.exit_code == ExitStatus.FINDINGS
    assert result.stderr.count("did you mean `global_batch`?") == 1


def test_times_are_read_as_people_write_them() -> None:
    """Days, hours, weeks and Slurm's clock give the same limit."""
    documents = [
        json.loads(
            run("sweep", "job.yaml", "gpus=64,128", "--within", text, "--format", "json").stdout
        )
        for text in ("14d", "2w", "336h", "336:00:00", "14-00:00:00")
    ]
    assert {document["goal"]["within_s"] for document in documents} == {14 * 86400.0}


def test_the_chart_puts_marks_where_the_values_are() -> None:
    """The largest value is on the top line, the ends of the axis at its ends, and the limit is a
    dashed line that is called the goal.
    """
    lines = chart("days", "gpus", {"": [(8, 40.0), (16, 20.0), (32, 10.0)]}, limit=20.0)
    body = [line.partition("|")[2] for line in lines[1 : HEIGHT + 1]]
    assert body[0].index("*") == 0 and body[-1].strip() == ""
    assert ["goal" in line for line in body] == ["---" in line for line in body]
    assert sum("---" in line for line in body) == 1
    assert (
        next(line for line in body if "-" in line)[(WIDTH - 1) // 2 : WIDTH // 2 + 2].count("*")
        == 1
    )
    assert [line for line in body if line.rstrip().endswith("*")][-1].rindex("*") == WIDTH - 1
    assert lines[-2].split() == ["8", "16", "32"]


def test_a_chart_of_values_far_apart_is_logarithmic() -> None:
    """Where the values span more than a factor of 20, equal ratios are equal heights, and the title
    says so.
    """
    lines = chart("days", "gpus", {"": [(8, 1000.0), (16, 100.0), (32, 10.0)]})
    assert lines[0] == "days (logarithmic)"
    body = [line.partition("|")[2] for line in lines[1 : HEIGHT + 1]]
    rows = [row for row, line in enumerate(body) if "*" in line]
    assert rows[0] == 0 and rows[2] == HEIGHT - 1 and abs(rows[1] - (HEIGHT - 1) / 2) < 1


def test_a_list_of_modules_is_one_value() -> None:
    """Commas inside a list don't end a value of a question."""
    answer = run(
        "plan",
        "job.yaml",
        "--compare",
        "recompute_modules=[core_attn, mlp],tensor=2",
        "--format",
        "json",
    )
    asked = json.loads(answer.stdout)["comparisons"][0]["asked"]
    assert asked == {"recompute_modules": ["core_attn", "mlp"], "tensor": 2}


def test_a_long_question_is_read_in_time_that_grows_with_its_length() -> None:
    """A hundred thousand commas, as many as an argument may have, take a moment of processor
    time.
    """
    started = time.process_time()
    answer = run("plan", "job.yaml", "--compare", "tensor=8," + "," * 100_000)
    assert time.process_time() - started < 5
    assert answer.exit_code == ExitStatus.USAGE and "is not KEY=VALUE" in answer.stderr
