"""What the files of a plan are found to be before they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.check.validate import check_rendered
from dsgen.findings import Severity
from tests.cli.running import run

H100 = {
    "accelerator": "h100-80gb-sxm",
    "accelerators_per_node": 8,
    "network_gbits_per_s_per_node": 3200,
}


def found(**changed: Any) -> dict[str, Severity]:
    """The rules that the files of a small Megatron job break, with their severity."""
    spec = {
        "framework": "megatron-lm",
        "model": "llama-3-8b",
        "cluster": H100,
        "nodes": 2,
        "layout": {"tensor": 2},
        "training": {"sequence_length": 8192, "global_batch": 512, "duration": {"steps": 100}},
        "data": {"path": "/data/x", "tokenizer": {"type": "HuggingFaceTokenizer", "path": "/d"}},
        "output": {"checkpoints": "/c"},
        "launch": {"target": "slurm"},
    }
    job = dsgen.load_job(
        spec, overrides={key.replace("__", "."): value for key, value in changed.items()}
    )
    plan = dsgen.search(job).plans[0]
    return {finding.rule: finding.severity for finding in check_rendered(dsgen.render(plan), job)}


@pytest.mark.parametrize(
    ("accelerator", "queues", "severity"),
    [("h100-80gb-sxm", "8", Severity.ERROR), ("h100-80gb-sxm", "1", None), ("b200", "8", None)],
)
def test_one_hardware_queue_is_asked_for_by_the_plans_cards(
    accelerator: str, queues: str, severity: Severity | None
) -> None:
    """Megatron stops at CUDA_DEVICE_MAX_CONNECTIONS=8 with tensor parallelism on H100; on Blackwell
    it is right.
    """
    variables = {"CUDA_DEVICE_MAX_CONNECTIONS": queues}
    assert (
        found(cluster={**H100, "accelerator": accelerator}, launch__environment=variables).get(
            "MLM012"
        )
        == severity
    )


@pytest.mark.parametrize("target", ["slurm", "shell", "kubernetes", "skypilot", "azureml"])
@pytest.mark.parametrize(
    ("framework", "layout", "rule", "queues"),
    [
        ("megatron-lm", {"tensor": 2}, "MLM012", "8"),
        ("megatron-lm", {"zero_stage": 3, "tensor": 1}, "MLM013", "1"),
        ("megatron-deepspeed", {"tensor": 2, "sequence_parallel": True}, "MDS012", "8"),
    ],
)
def test_the_spec_says_the_framework_whatever_the_script_is_called(
    target: str, framework: str, layout: dict[str, Any], rule: str, queues: str
) -> None:
    """Files of a Megatron job break the rules of Megatron with train.py as they do with
    pretrain_gpt.py.
    """
    for script in ("train.py", "pretrain_gpt.py"):
        rules = found(
            framework=framework,
            layout=layout,
            cluster={**H100, "accelerator": "a100-80gb-sxm"},
            nodes=1,
            data__tokenizer={"type": "GPTSentencePieceTokenizer", "path": "/d"},
            launch={
                "target": target,
                "script": script,
                "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": queues},
            },
        )
        assert rules.get(rule) == Severity.ERROR, script


def test_fp32_states_of_sgd_need_no_option() -> None:
    """SGD with a master copy in fp32, which is its own, gets no option that is Adam's alone."""
    assert found(training__optimizer="sgd", training__master_dtype="fp32") == {}


def test_options_of_the_trainer_are_judged_by_the_release_that_the_files_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that went with transformers 5 is a warning before the files are written, as it is
    afterwards.
    """
    monkeypatch.chdir(tmp_path)
    arguments = ["--warmup_ratio", "0.03", "--overwrite_output_dir"]
    launch = {"target": "slurm", "script": "train.py", "arguments": arguments}
    training = {"sequence_length": 4096, "global_batch": 64, "duration": {"steps": 100}}
    spec = {
        "framework": "huggingface",
        "model": "llama-3-8b",
        "cluster": H100,
        "nodes": 1,
        "training": training,
    }
    job = dsgen.load_job({**spec, "launch": launch})
    files = dsgen.render(dsgen.search(job).plans[0])
    before = [one for one in check_rendered(files, job, Path("out")) if one.rule == "HF023"]
    (Path("out")).mkdir()
    for file in files:
        (Path("out") / file.path).write_text(file.text)
    after = [one for one in dsgen.validate(Path("out")) if one.rule == "HF023"]
    assert (
        [one.severity for one in before]
        == [one.severity for one in after]
        == [Severity.WARNING] * 2
    )


def test_the_program_of_a_plan_may_be_where_the_plan_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of Megatron's own program beside other programs, neither before the files of
    a plan are written nor after; of a script that isn't a plan's it is.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    written = run("generate", "--gpus", "1024", "--output", "plan")
    assert "LNCH043" not in written.output
    of_plan = dsgen.validate("plan")
    assert ("LNCH043", Severity.WARNING) not in {(one.rule, one.severity) for one in of_plan}

    (tmp_path / "job.sh").write_text("#!/bin/bash\ntorchrun --nproc-per-node 8 pretrain_gpt.py\n")
    (finding,) = (one for one in dsgen.validate("job.sh") if one.rule == "LNCH043")
    assert finding.severity is Severity.WARNING
