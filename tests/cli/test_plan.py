"""`dsgen plan` says of the best plan what `dsgen generate` says before it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import run

SMALL = (
    "--model",
    "gpt3-1.3b",
    "--cluster",
    "nvidia/dgx-h100",
    "--gpus",
    "8",
    "--global-batch",
    "256",
)
DURATION = "training.duration.tokens=1e10"
SHORT = (*SMALL, "--set", DURATION, "--set", "launch.time_limit=1:00:00", "--set", "output=null")


def test_findings_of_the_best_plan_are_printed() -> None:
    """A time limit below the run's length is a warning on stderr, and what a submission lacks is
    said.
    """
    result = run("plan", *SHORT)
    assert "[TIME001]" in result.stderr
    assert "Not ready to submit: no data (set data.path)" in result.stdout


def test_a_plan_needs_no_hosts(tmp_path: Path) -> None:
    """Several plain machines without hosts are planned and written, and the hosts are named as
    missing.
    """
    nodes = (*SMALL, "--gpus", "16", "--set", "launch.target=shell")
    for command in (("plan",), ("generate", "-o", str(tmp_path / "out"))):
        text = " ".join(run(*command, *nodes).stdout.split())
        assert "no hosts (set launch.shell.hosts, or hostfile)" in text


def test_a_job_that_lacks_nothing_says_nothing() -> None:
    """With data, tokenizer and checkpoints given, nothing is missing."""
    given = (DURATION, "data.path=/d", "data.tokenizer.path=/t", "output.checkpoints=/c")
    result = run("plan", *SMALL, *(word for each in given for word in ("--set", each)))
    assert "Not ready" not in result.output


def test_a_layout_that_is_pinned_whole_was_not_searched(tmp_path: Path) -> None:
    """Where the pins leave one layout, the answer says so, and counts no layouts that fit."""
    pins = {
        "micro_batch": 1,
        "gradient_accumulation": 4,
        "recompute": "full",
        "zero_stage": 3,
        "offload": "none",
        "zero_copies": 1,
        "sync_each_batch": False,
    }
    spec = {
        "framework": "huggingface",
        "model": "qwen2.5-7b",
        "cluster": "dgx-h100",
        "gpus": 32,
        "layout": pins,
        "training": {"sequence_length": 4096, "global_batch": 128, "sharding": "fsdp2"},
        "launch": {"script": "train.py"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    shown = run("plan", str(tmp_path / "job.yaml")).stdout
    assert "chosen  the job pins the whole layout" in shown and "layouts fit" not in shown


def test_one_layout_with_two_sets_of_details_is_the_only_one_once(tmp_path: Path) -> None:
    """Where one layout fits, the fastest of its details isn't called the only layout beside the
    chosen ones.
    """
    pins = {
        "micro_batch": 2,
        "gradient_accumulation": 4,
        "recompute": "full",
        "zero_stage": 3,
        "offload": "none",
    }
    spec = {
        "framework": "huggingface",
        "model": "qwen2.5-7b",
        "cluster": "dgx-h100",
        "gpus": 16,
        "layout": pins,
        "training": {"sequence_length": 4096, "global_batch": 128},
        "launch": {"script": "train.py"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    shown = run("plan", str(tmp_path / "job.yaml")).stdout
    assert shown.count("the only layout that fits") == 1
    assert "fastest  the same layout with its fastest details" in shown


def test_the_rate_of_saving_agrees_with_its_bytes_and_seconds() -> None:
    """What is saved in how long, as it is printed, is the rate beside it."""
    result = run("plan", *SMALL, "--set", "reliability.storage_gbytes_per_s=1.84", "--explain")
    said = re.search(r"saving +([\d.]+) GB in ([\d.]+) s .* ([\d.]+) GB/s", result.stdout)
    assert said is not None, result.stdout
    size, took, rate = map(float, said.groups())
    assert abs(size / took / rate - 1) < 0.02


def test_a_front_ends_launch_is_not_called_unready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job whose launch is another program's to write, `plan` says so, and asks for no data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(
        "framework: huggingface\nmodel: llama-3.1-8b\ncluster: dgx-h100\ngpus: 8\n"
        "training: {sequence_length: 2048, global_batch: 64}\n"
        "launch: {target: shell, script: llamafactory-cli, arguments: [train, train.yaml]}\n"
    )
    text = " ".join(run("plan", "job.yaml").stdout.split())
    assert "dsgen does not write the launch of LLaMA-Factory; dsgen generate writes" in text
    assert "Not ready" not in text


def test_more_rows_than_layouts_are_explained() -> None:
    """Where one layout has several rows, by its details, the count of layouts says so."""
    job = ("--model", "llama-2-7b", "--framework", "megatron-lm", "--cluster", "dgx-h100")
    size = ("--gpus", "16", "--sequence-length", "4096", "--global-batch", "64")
    pinned = {"tensor": 2, "pipeline": 2, "context": 1, "micro_batch": 1, "zero_stage": 1}
    pins = [f"--set=layout.{key}={value}" for key, value in pinned.items()]
    text = run("plan", *job, *size, *pins, "--top", "20").stdout
    count = re.search(r"([0-9]+) of [0-9]+ layouts fit, each with one or more sets of", text)
    rows = re.findall(r"^(?:chosen|[0-9]+) +[0-9]", text, re.MULTILINE)
    assert count is not None and int(count[1]) < len(rows) == 20
