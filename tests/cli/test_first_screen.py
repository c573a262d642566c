"""The first screen at 80 columns: the answer in the first six lines, 30 lines at most, no row
wrapped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dsgen
from dsgen.cli.answers import nearby
from dsgen.search import Suggestion
from tests.cli.running import run
from tests.docs.blocks import blocks
from tests.examples import FOLDER, NAMES

DOCS = Path(__file__).parents[2] / "docs"
ANSWER = ("Chosen", "Memory", "Speed", "Run")
MANY = (
    "gpus=128..1024",
    *("--model", "llama-3-70b", "--cluster", "dgx-h100", "--gpus", "64"),
)  # 25 points
MEGATRON = """
name: {name}
framework: megatron-lm
model: {model}
cluster: dgx-h100
nodes: {nodes}
training:
  {{sequence_length: {length}, global_batch: {{tokens: 4194304}}, duration: {{tokens: 100e9}}}}
data: {{path: /data/text, tokenizer: {{path: {model}}}}}
output: {{checkpoints: /checkpoints/run}}
launch: {{script: /opt/Megatron-LM/pretrain_gpt.py, time_limit: 7-00:00:00, {launch}}}
"""
PYXIS = (
    "target: slurm, slurm: {container_image: nvcr.io/nvidia/pytorch:25.11-py3, "
    "container_runtime: pyxis}"
)
PODS = (
    "target: kubernetes, kubernetes: {image: train:1, volumes: ['data:/data', 'runs:/checkpoints']}"
)
JOBS = {  # of the pages, and as their pages have the keys
    "all weights": ("fine-tuning.md", "full.yaml"),
    "LoRA": ("fine-tuning.md", "lora.yaml"),
    "AzureML": ("azureml.md", "sft.yaml"),
    "pyxis": MEGATRON.format(
        name="mix", model="mistralai/Mixtral-8x7B-v0.1", nodes=32, length=4096, launch=PYXIS
    ),
    "PyTorchJob": MEGATRON.format(
        name="70b", model="meta-llama/Llama-3.1-70B", nodes=16, length=8192, launch=PODS
    ),
}
MIXTURE = (
    *(
        "--model",
        "deepseek-v3",
        "--cluster",
        "dgx-h100",
        "--nodes",
        "128",
        "--framework",
        "megatron-lm",
    ),
    *(
        "--sequence-length",
        "4096",
        "--global-batch",
        "7680",
        "--set",
        "training.duration.tokens=1T",
    ),
    *("--set", "launch.time_limit=1-00:00:00"),
)  # a layout of many words, and a finding below the answer


@pytest.fixture(autouse=True)
def _at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def screen(*arguments: str) -> list[str]:
    """The lines of standard output; with those of standard error they fit a screen."""
    result = run(*arguments)
    lines = result.stdout.splitlines()
    assert [line for line in result.output.splitlines() if len(line) > 80] == []
    assert len(result.output.splitlines()) <= 30, result.output
    return lines


def written(page: str, title: str) -> str:
    """The block of a page that has this title."""
    return next(block.text for block in blocks(DOCS / page) if block.options.get("title") == title)


def table(lines: list[str]) -> list[str]:
    """The rows of the plans, without the heading."""
    start = next(number for number, line in enumerate(lines) if re.match(r"plan +DP ", line)) + 1
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize(
    "arguments", [("--gpus", "1024"), *((str(FOLDER / f"{name}.yaml"),) for name in NAMES)]
)
def test_the_answer_comes_first(arguments: tuple[str, ...]) -> None:
    """Plan, memory, speed and the run are in the first six lines; every row of the table is one
    line.
    """
    lines = screen(*arguments, "-o", "out")
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    rows = table(lines)
    assert rows and all(re.match(r"(chosen|fastest|roomy|\d+) +\d", row) for row in rows)
    assert all(re.search(r" \d+\.\d%", row) for row in rows)  # MFU is there


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_documented_jobs_are_ready_on_one_screen(job: str | tuple[str, str]) -> None:
    """Jobs as the pages write them are ready to start: the answer is in the first six lines, the
    command below it.
    """
    spec = job if isinstance(job, str) else written(*job)
    Path("job.yaml").write_text(spec, encoding="utf-8")
    Path("src").mkdir()  # what AzureML uploads
    lines = screen("job.yaml", "-o", "out")
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    assert any(re.match(r" {8}(sbatch|az ml|kubectl|out/launch)", line) for line in lines[6:13])


@pytest.mark.parametrize("arguments", [("--gpus", "1024"), ("--gpus", "64"), MIXTURE])
def test_plan_has_the_same_order(arguments: tuple[str, ...]) -> None:
    """`dsgen plan` begins as `dsgen` does, and lists as many plans as there is room for."""
    lines = screen("plan", *arguments)
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    assert len(table(lines)) >= 4


def test_as_many_plans_are_listed_as_are_asked_for() -> None:
    """With `--top` the table has the plans that it says, on however many lines; without it, those
    that fit.
    """
    more, fewer = (run("plan", *MIXTURE, *top).stdout.splitlines() for top in (("--top", "20"), ()))
    assert len(table(more)) > len(table(fewer)) and len(more) > 30


@pytest.mark.parametrize("command", [(), ("plan",)])
@pytest.mark.parametrize("counts", ["960..1024:32", "64,128,256", "512..1024:16"])
def test_an_elastic_job_has_its_counts_in_place_of_other_plans(
    counts: str, command: tuple[str, ...]
) -> None:
    """Of a job on several counts of GPUs, the screen has the largest plan, then a row for each
    count.
    """
    lines = screen(
        *command, "--gpus", counts, "--global-batch", "1920", *(() if command else ("-o", "out"))
    )
    assert [word for word in ANSWER if not any(line.startswith(word) for line in lines[:6])] == []
    start = next(number for number, line in enumerate(lines) if re.match(r" *GPUs +nodes ", line))
    assert re.match(r" *[\d,]+ +\d+ ", lines[start + 1])


@pytest.mark.parametrize(
    "arguments", [("--gpus", "1024"), ("--gpus", "1024", "--set", "layout.tensor=8")]
)
def test_an_estimate_fits_a_screen_with_its_findings(arguments: tuple[str, ...]) -> None:
    """The answer comes first, then memory as bars; what the rules say of the layout is below."""
    lines = screen("estimate", *arguments)
    assert [
        word for word in ANSWER[1:] if not any(line.startswith(word) for line in lines[:6])
    ] == []


@pytest.mark.parametrize(
    "arguments", [(), ("gpus=256..1024:256", "--within", "30d"), ("gpus=8..16",), MANY]
)
def test_a_sweep_begins_with_the_points_that_answer(arguments: tuple[str, ...]) -> None:
    """The fastest and the cheapest, or the smallest that does, come before the table and the
    curve.
    """
    assert screen("sweep", *arguments)[0].startswith(
        "Smallest" if "--within" in arguments else "Fastest"
    )


def test_trials_are_a_table_of_plans() -> None:
    """`dsgen tune` says first how long the trials take and the command, then has a row for each
    plan.
    """
    lines = run("tune", "--gpus", "1024", "-o", "trials").output.splitlines()
    assert len(lines) <= 30 and all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[:6] if line[:1].strip()] == [
        "job:",
        "Trials",
        "Runs",
        "Command",
    ]
    start = next(number for number, line in enumerate(lines) if re.match(r"trial +DP ", line))
    assert [line.split()[0] for line in lines[start + 1 : start + 6]] == ["1", "2", "3", "4", "5"]


def test_a_sweep_draws_its_curve_in_the_unit_of_the_table() -> None:
    """Runs of hours have a curve in hours; a range of lengths is written as specs write them."""
    spec = FOLDER / "llama-2-13b-offload.yaml"
    lines = screen(
        "sweep", str(spec), "sequence_length=1k..2k", "--set", "training.duration.tokens=1B"
    )
    assert "hours" in lines and any(re.match(r" +2,048 .* hours", line) for line in lines)


def test_findings_are_folded_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a plan, findings are as wide as the terminal; `validate`, and a pipe, have each on one
    line.
    """
    Path("job.yaml").write_text(
        (FOLDER / "gpt3-175b-azure.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    told = ("estimate", "job.yaml", "--set", "layout.tensor=8")
    folded = run(*told).stderr
    monkeypatch.delenv("COLUMNS")
    whole = run(*told).stderr
    assert max(map(len, folded.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    assert folded.replace("\n  ", " ").splitlines()[0] == whole.splitlines()[0]


def test_answers_to_questions_come_before_tables() -> None:
    """The chosen plan and the answer to each `--compare` are on the first lines."""
    lines = screen("plan", "--gpus", "1024", "--compare", "pipeline=8,tensor=8")
    assert [line.split()[0] for line in lines[:6] if line[:1].strip()] == ["Chosen", "Asked"]


@pytest.mark.parametrize("asked", [("tensor=8", "micro_batch=2"), ("tensor=8", "recompute=full")])
def test_several_questions_share_a_table(asked: tuple[str, ...]) -> None:
    """Of several `--compare`, a table has a column for each that can be planned, and all fits a
    screen.
    """
    lines = screen(
        "plan", "--gpus", "1024", *(word for one in asked for word in ("--compare", one))
    )
    [heading] = [line for line in lines if line.split()[:1] == ["chosen"]]
    assert heading.split() == ["chosen", "asked", "1", "asked", "2"]


def test_times_of_a_column_have_one_unit() -> None:
    """Step times on both sides of 1,000 s are all in seconds."""
    larger = ("--global-batch", "9216")
    rows = table(screen("plan", str(FOLDER / "gpt-2t-zero3-offload.yaml"), *larger))
    assert {
        re.search(r"[\d,.]+ (\w+) +(?:[+-]\d+\.\d%|× [\d.]+)? +\d+\.\d%", row)[1] for row in rows
    } == {"s"}  # type: ignore[index]
    assert any(re.search(r" 1,\d{3} s ", row) for row in rows)


def test_a_job_that_is_not_ready_says_so_in_place_of_the_command() -> None:
    """What is missing stands in the line of the next command, which isn't shown."""
    lines = screen("--gpus", "1024", "-o", "out")
    assert any(
        line.startswith("Next    Not ready to submit: no data (set data.path)")
        for line in lines[:8]
    )
    assert not any("sbatch out" in line for line in lines)


def test_what_does_not_fit_begins_with_what_would() -> None:
    """Where nothing fits, the changes that would make it fit are in the first six lines."""
    lines = screen("--gpus", "8")
    assert lines[0].startswith("gpt3-175b: none of ")
    assert any(line.strip().startswith("gpus: ") for line in lines[:6])


def test_rows_that_differ_look_different() -> None:
    """A remark that has no room in its row stands below the table, with the row; the order of the
    rows is said.
    """
    plain = (
        *(
            "--model",
            "Qwen/Qwen2.5-7B",
            "--framework",
            "huggingface",
            "--cluster",
            "4xa10g",
            "--gpus",
            "4",
        ),
    )
    lora = (
        "--sequence-length",
        "2048",
        "--global-batch",
        "64",
        "--set",
        "training.lora={rank: 16}",
    )
    lines = screen("plan", *plain, *lora)
    cut = [row.split()[0] for row in table(lines) if row.endswith("…")]
    below = " ".join(lines[lines.index(table(lines)[-1]) + 1 :])
    assert cut and "offload: optimizer" in below
    assert all(re.search(rf"(^| ){name}[ ,]", below) for name in cut)


def test_the_disk_figure_has_its_checkpoints_and_what_keeps_fewer() -> None:
    """The number of checkpoints is beside their size, with the key or option that keeps fewer,
    where there is one; those of a program that deletes older ones are the last.
    """
    assert re.search(r"2\.10 PB in 860 saves\b(?! \()", " ".join(screen("plan", "--gpus", "1024")))
    small = (
        "--model",
        "llama-3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16",
        "--set",
        "training.duration.tokens=1T",
    )
    for framework, kept, fewer in (
        ("huggingface", r"the last [\d,]+", "output.keep"),
        ("megatron-lm", r"[\d,]+", "--save-retain-interval"),
    ):
        said = " ".join(" ".join(screen("plan", *small, "--framework", framework)).split())
        assert re.search(rf"B in {kept} saves \(fewer: {fewer}\)", said)


def test_a_batch_that_only_an_odd_plan_divides_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that only context parallelism divides is named with the replicas that it allows, and
    batches that do.
    """
    monkeypatch.chdir(tmp_path)
    job = [
        "--framework",
        "huggingface",
        "--model",
        "llama-3.1-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16",
    ]
    sizes = [
        "--sequence-length",
        "8192",
        "--global-batch",
        "100",
        "--set",
        "training.lora={rank: 16}",
    ]
    for command in ("plan", "generate"):
        told = " ".join(run(command, *job, *sizes).output.split())
        assert "data has to divide both 16 GPUs (--gpus 16) and a global batch of 100" in told
        assert all(
            f" {change} " in told for change in ("layout.context: 8", "training.global_batch: 96")
        )


def test_offloading_leaves_the_headroom_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that take 96 % of a node's memory don't fit; the headroom with which they do is
    offered, and true.
    """
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(
        "framework: deepspeed\n"
        "model: llama-3.1-70b\n"
        "cluster: {accelerator: h100-80gb-sxm, accelerators_per_node: 8, "
        "network_gbits_per_s_per_node: 3200, host_memory_gib: 1365}\n"
        "gpus: 8\n"
        "training: {sequence_length: 4096, global_batch: 64}\n",
        encoding="utf-8",
    )
    refused = " ".join(run("plan", "job.yaml").stdout.split())
    assert "has 1,365.0 GiB, less 5% headroom" in refused
    assert "memory.headroom: 0.03" in refused
    kept = run("plan", "job.yaml", "--set", "memory.headroom=0.03").stdout
    assert "of 1,365.0 GiB per node; fits with pin_memory: false alone" in " ".join(kept.split())


def test_lost_time_has_its_main_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A goodput below 90 % says what takes most of the rest."""
    monkeypatch.chdir(tmp_path)
    said = run(
        "generate", "--set", "training.duration.steps=1000", "--set", "output.save_interval=1"
    ).stdout
    assert re.search(r"goodput \d\d% \(most lost to saves\)", " ".join(said.split()))


def test_a_batch_that_divides_poorly_has_one_beside_it_that_divides() -> None:
    """Of 101 sequences on 16 GPUs, the nearest batch that all can share is named with what it
    gains.
    """
    job = (
        "--model",
        "llama-3.2-1b",
        "--framework",
        "megatron-lm",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16",
    )
    for command in ("plan", "generate"):
        lines = run(command, *job, "--sequence-length", "4096", "--global-batch", "101").output
        assert re.search(
            r"Faster +set training\.global_batch: 96: \d+% less time per token\s+\(16\s+replicas",
            lines,
        )


def test_a_count_that_divides_better_is_on_the_first_screen() -> None:
    """Of 19 nodes, the count nearby that is faster per GPU is named by the first screen as by
    `plan`, and that the run ends earlier on fewer GPUs.
    """
    job = (
        "--model",
        "llama-3-70b",
        "--framework",
        "megatron-lm",
        "--cluster",
        "dgx-h100",
        "--nodes",
        "19",
    )
    job += ("--sequence-length", "8192", "--global-batch", "1024")
    for command in ("plan", "generate"):
        assert re.search(
            r"Faster +set gpus: 144: at least \d\d% fewer GPU-hours and \d+% less time",
            " ".join(" ".join(screen(command, *job)).split()),
        )


def test_rows_say_how_they_differ() -> None:
    """Every row with a name has its reason in words below the table."""
    lines = screen("--gpus", "1024", "-o", "out")
    names = [row.split()[0] for row in table(lines) if not row[0].isdigit()]
    assert names[0] == "chosen"
    below = lines[lines.index(table(lines)[-1]) + 1 :]
    assert [name for name in names if not any(line.startswith(f"{name} ") for line in below)] == []


def test_explain_is_tables() -> None:
    """`--explain` has a row for each other value: step time, memory and amounts by cause; and what
    had to change with it, or why it can't be chosen.
    """
    lines = run("plan", "--gpus", "1024", "--explain").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("decision "))
    assert lines[start].split() == ["decision", "chosen", "other", "time", "GiB", "difference"]
    rows = lines[start + 1 : lines.index("", start)]
    assert any(re.search(r" [+-]\d+% +[+-]\d+\.\d  [a-z ]+ [+-][\d.]+ s", row) for row in rows)
    assert all(re.match(r"[a-z_]+ +\S| {20}", row) for row in rows)
    below = lines[start + len(rows) + 2 :]
    assert any(re.match(r"[a-z_]+ \S+: (changes|does not fit|expected) ", line) for line in below)


def test_a_value_that_suits_a_plan_of_the_table_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plan of the table has another value at clearly less time than the chosen plan with
    that value alone, `--explain` names its row and its time.
    """
    monkeypatch.setenv("COLUMNS", "120")  # for every column of the table
    job = ("--model", "qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", "16", "--top", "10")
    lines = run("plan", *job, "--framework", "megatron-lm", "--explain").stdout.splitlines()
    head = next(line for line in lines if line.startswith("plan "))
    found = [
        match
        for line in lines
        if (match := re.match(r"(\w+) (\S+): (\S+%) in row (\d+), where other keys", line))
    ]
    assert found
    for key, value, change, row in (match.groups() for match in found):
        shown = next(line for line in lines if re.match(rf"{row} +\d", line))
        assert f" {change} " in shown
        heading = {"tensor": "TP", "pipeline": "PP", "context": "CP", "expert": "EP"}.get(key)
        if heading and f" {heading} " in head and value != "1":
            end = head.index(f" {heading} ") + 1 + len(heading)
            assert shown[:end].split()[-1] == value


def test_offer_of_a_key_names_what_changes_with_it_as_set_takes_it() -> None:
    """The line `Faster` has each key that its plan has otherwise, in a form that `--set` takes."""
    spec = {
        "model": "qwen3-14b",
        "cluster": "dgx-h100",
        "gpus": 16,
        "framework": "huggingface",
        "training": {"global_batch": 128, "sharding": "fsdp2"},
    }
    pins = {"zero_stage": 3, "micro_batch": 1, "sync_each_batch": False}
    best, other = (
        dsgen.estimate(dsgen.load_job({**spec, "layout": pins | more}))
        for more in (
            {"recompute": "full", "offload": "none"},
            {"recompute": "none", "offload": "optimizer+parameters"},
        )
    )
    offer = Suggestion(
        path="layout.recompute", value="none", text="layout.recompute: none", plan=other
    )
    ((_, text),) = nearby(best, [offer])
    assert "(with layout.offload: optimizer+parameters)" in text
    values = re.findall(r"([\w.]+): ([\w+]+)[):,]", text)
    assert [key for key, _ in values] == ["layout.recompute", "layout.offload"]
    assert dsgen.load_job(spec, overrides=dict(values)).pins.recompute == "none"
