"""What is read and written stays within what was named, and what users give is read within
limits.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.running import run

CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "cpu_offload": true}}'
JOB = """name: small
framework: deepspeed
model: gpt2
cluster: azure/standard_nd96amsr_a100_v4
gpus: 16
training: {global_batch: 64}
launch: {target: azureml, script: train.py,
  azureml: {code: ./src, compute: gpu, environment: "azureml:env:1"}}
"""


MACHINES = ("--cluster", "nvidia/dgx-h100", "--gpus", "8")


@pytest.fixture(autouse=True)
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the working directory, and one beside it that is not named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "t.json").write_text(CONFIG)
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def test_a_link_out_of_the_folder_is_not_followed(repo: Path) -> None:
    """Neither a line of its target is shown, nor is it rewritten."""
    (repo / "ds_config.json").symlink_to("../elsewhere/t.json")
    assert "cpu_offload" not in run("validate", "repo", "--fix").output
    assert (repo.parent / "elsewhere" / "t.json").read_text() == CONFIG


def test_a_link_within_the_folder_is_read_and_not_written(repo: Path) -> None:
    """The file is checked once, by its own name; through a link alone it is not fixed."""
    hidden = repo / ".store"  # which a run of the folder doesn't look into
    hidden.mkdir()
    (hidden / "zero1").write_text(CONFIG)
    (repo / "ds_config.json").symlink_to(".store/zero1")
    assert "cpu_offload" in run("validate", "repo", "--fix").output
    assert (hidden / "zero1").read_text() == CONFIG
    assert (repo / "ds_config.json").is_symlink()


def test_what_a_named_file_names_is_judged_with_it(repo: Path) -> None:
    """A config that a named script names is part of its job, and isn't changed; of a folder's files
    nothing else is read.
    """
    (repo / "ds_config.json").write_text(CONFIG)
    (repo / "zero3.json").write_text(CONFIG)
    (repo / "run.sh").write_text(
        "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds_config.json\n"
    )
    output = run("validate", "repo/run.sh", "--fix").output
    assert "repo/ds_config.json:1:59: note: `cpu_offload` is deprecated" in output
    assert "zero3.json" not in output
    assert (repo / "ds_config.json").read_text() == CONFIG


_seen: list[str] = []  #: files opened and folders listed while a test wants them


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.scandir", "os.listdir") and isinstance(
        arguments[0], str | os.PathLike
    ):
        _seen.append(os.path.realpath(arguments[0]))


sys.addaudithook(_note)


@pytest.mark.parametrize(
    "command",
    [
        ["validate", "repo"],
        ["init", "--from", "repo", "-o", "repo/new.yaml", "--model", "gpt2", *MACHINES],
    ],
)
def test_nothing_beside_the_folder_is_read_or_listed(repo: Path, command: list[str]) -> None:
    """Neither files that a launch line names there, nor folders that links or a glob lead to."""
    for name in ("train.py", "pyproject.toml", "requirements.txt"):
        (repo.parent / "elsewhere" / name).write_text("deepspeed==0.9.5\n")
    (repo / "ds_config.json").write_text(
        '{"zero_optimization": {"stage": 2, "cpu_offload": true}, "fp16": {}}'
    )
    (repo / "lib").symlink_to("../elsewhere")
    (repo / "run.sh").write_text(
        "deepspeed elsewhere/train.py --deepspeed --deepspeed_config ds_config.json\n"
    )
    _seen.clear()
    output = run(*command).output
    assert [path for path in _seen if path.startswith(str(repo.parent / "elsewhere"))] == []
    assert output


@pytest.mark.parametrize("key", ["model", "calibration"])
def test_a_spec_that_is_found_does_not_lead_out(repo: Path, key: str) -> None:
    """A spec in a folder is read with files of that folder alone; one that is named itself may name
    others.
    """
    text = JOB.replace(
        "model: gpt2", f"{key}: ../elsewhere/t.json" + ("" if key == "model" else "\nmodel: gpt2")
    )
    (repo / "dsgen.yaml").write_text(text)
    found, named = (
        run("validate", path, "--format", "json").output for path in ("repo", "repo/dsgen.yaml")
    )
    assert f"`{key}` is a file outside of the folder that is checked" in found
    assert "t.json" in named
    assert "outside" not in named
    (repo / "models").mkdir()
    (repo / "models" / "m.json").write_text("{}")
    (repo / "dsgen.yaml").write_text(text.replace("../elsewhere/t.json", "models/m.json"))
    assert "outside" not in run("validate", "repo", "--format", "json").output


def test_a_file_of_the_folder_is_still_fixed(repo: Path) -> None:
    """A config whose kind is certain is fixed beside links that are not."""
    (repo / "ds_config.json").write_text(CONFIG)
    (repo / "ds_other.json").symlink_to("../elsewhere/t.json")
    run("validate", "repo", "--fix")
    assert '"offload_optimizer"' in (repo / "ds_config.json").read_text()


def test_programs_around_are_read_in_the_project_alone(repo: Path) -> None:
    """A release that is named above the folder is not looked for there."""
    (repo.parent / "requirements.txt").write_text("deepspeed==0.9.5\n")
    (repo / "ds_config.json").write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}'
    )
    assert "0.9.5" not in run("validate", "repo").output
    (repo / "requirements.txt").symlink_to("../requirements.txt")
    assert "0.9.5" not in run("validate", "repo").output


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"dsgen_baseline": 1, "findings": [{"rule": "A", "path": "b", "line": '
        '"c", "count": 1e999}]}',
        '{"dsgen_baseline": 1, "findings": [{"rule": 5, "path": "b", "line": "c", "count": 1}]}',
        '{"dsgen_baseline": 1, "findings": 7}',
        "9" * 5000,
    ],
)
def test_json_of_users_is_read_within_limits(repo: Path, text: str) -> None:
    """A baseline, plan or model that is nested, infinite or of other types is refused in words."""
    (repo / "ds_config.json").write_text(CONFIG)
    (repo / "b.json").write_text(text)
    assert "is no baseline of dsgen" in run("validate", "repo", "--baseline", "repo/b.json").output
    (repo / "plan.json").write_text(text)
    assert "cannot be used" in run("submit", "repo", "--dry-run").output
    (repo / "config.json").write_text(text)
    assert (
        "SPEC013"
        in run(
            "plan", "--model", "repo/config.json", "--cluster", "nvidia/dgx-h100", "--gpus", "8"
        ).output
    )


def test_a_plan_of_an_unknown_target_is_refused_without_its_values(repo: Path) -> None:
    """Nothing of plan.json is quoted: it may hold what nobody else may see."""
    Path("job.yaml").write_text(JOB.replace("code: ./src, ", ""))
    run("generate", "job.yaml", "-o", "out")
    plan = json.loads(Path("out/plan.json").read_text())
    Path("out/plan.json").write_text(
        json.dumps({**plan, "job": {**plan["job"], "target": "hush-4711"}})
    )
    output = run("submit", "out", "--dry-run").output
    assert "job.target is none of" in output
    assert "hush-4711" not in output


def test_a_plan_that_lacks_a_key_is_refused_with_its_name(repo: Path) -> None:
    """What plan.json lacks is named, so that its user sees what was cut off."""
    (repo / "plan.json").write_text("{}")
    assert "$.dsgen_version is missing" in run("submit", "repo", "--dry-run").output


def test_trials_that_lie_elsewhere_are_none(repo: Path) -> None:
    """tune reads neither plans nor logs that a link out of the folder leads to."""
    Path("job.yaml").write_text(JOB.replace("code: ./src, ", ""))
    run("generate", "job.yaml", "-o", "elsewhere")
    (repo / "trial-1").symlink_to("../elsewhere")
    assert "repo has no trials" in run("tune", "job.yaml", "--read", "-o", "repo").output


def test_a_named_pipe_is_no_plan(repo: Path) -> None:
    """submit doesn't wait for what nobody writes."""
    os.mkfifo(repo / "plan.json")
    assert "has no plan.json" in run("submit", "repo", "--dry-run").output


def test_a_spec_that_lies_elsewhere_is_none(repo: Path) -> None:
    """submit reads no dsgen.yaml that a link out of the folder leads to."""
    Path("outside.yaml").write_text("model: of-somebody-else\n")
    (repo / "dsgen.yaml").unlink(missing_ok=True)
    (repo / "dsgen.yaml").symlink_to("../outside.yaml")
    answer = run("submit", "repo", "--dry-run")
    assert "repo has no plan.json and no dsgen.yaml" in answer.output
    assert "of-somebody-else" not in answer.output


def test_a_plan_that_lies_elsewhere_is_none(repo: Path) -> None:
    """submit reads no plan.json that a link out of the folder leads to, also in the folder of a
    count of GPUs.
    """
    Path("job.yaml").write_text(JOB.replace("code: ./src, ", ""))
    run("generate", "job.yaml", "-o", "elsewhere")
    (repo / "plan.json").symlink_to("../elsewhere/plan.json")
    (repo / "8gpus").symlink_to("../elsewhere")
    assert "has no plan.json" in run("submit", "repo", "--dry-run").output


@pytest.mark.parametrize(
    "line", ["{'loss': 1.0, ", "iteration 1/ ", "steps: 1 loss: ", "time (ms) | fwd: 1 "]
)
def test_a_long_line_of_a_log_takes_no_longer_than_short_ones(repo: Path, line: str) -> None:
    """The time to read a log grows with its size, whatever its lines."""
    (repo / "train.log").write_text(
        f"{line * (400_000 // len(line))}'epoch': elapsed time per iteration iter time time (ms)"
    )
    before = time.process_time()
    run("calibrate", "repo/train.log", "-o", "cal.json")
    assert time.process_time() - before < 5


def test_what_is_left_out_is_kept_in_linear_time(repo: Path) -> None:
    """init --from names each of 10,000 keys that a spec lacks."""
    keys = "".join(f"key_{number}: {number}\n" for number in range(10_000))
    (repo / "acc.yaml").write_text(
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n{keys}"
    )
    before = time.process_time()
    run(
        "init",
        "--from",
        "repo/acc.yaml",
        "-o",
        "x.yaml",
        "--model",
        "gpt2",
        "--cluster",
        "nvidia/dgx-h100",
        "--gpus",
        "8",
    )
    assert time.process_time() - before < 10


def test_lines_of_a_diff_end_at_line_feeds(repo: Path) -> None:
    """U+2028 within a line is no end of it."""
    (repo / "ds_config.json").write_text(CONFIG.replace("true}", 'true, "x": "a\u2028b"}'))
    output = run("validate", "repo", "--fix", "--diff").output
    assert sum(line.startswith(("-{", "+{")) for line in output.split("\n")) == 2
    assert "\\ No newline" in output


def test_code_beside_the_spec_is_written_from_the_job_file(repo: Path) -> None:
    """The job uploads the folder that lies beside the spec, and validate agrees."""
    (repo / "src").mkdir()
    (repo / "job.yaml").write_text(JOB)
    assert run("generate", "repo/job.yaml", "-o", "repo/out").exit_code == 0
    assert "code: ../src\n" in (repo / "out" / "job.yml").read_text()
    assert "AML021" not in run("validate", "repo/out").output


@pytest.mark.parametrize(
    ("code", "missing"),
    [("./src", "repo/src"), ("../nosuch", "nosuch"), ("out/src", "repo/out/src")],
)
@pytest.mark.parametrize("command", ["generate", "submit", "tune"])
def test_code_that_is_nowhere_is_refused(repo: Path, command: str, code: str, missing: str) -> None:
    """A folder that isn't there, seen from the spec, is named, with what to make or leave out;
    nothing is written.
    """
    (repo / "job.yaml").write_text(JOB.replace("./src", code))
    output = run(
        command, "repo/job.yaml", "-o", "repo/out", *(["--yes"] if command != "generate" else [])
    ).output
    assert f"there is no folder {missing}, which launch.azureml.code names [AML021]" in output
    assert f"make {missing} and put train.py into it, or leave launch.azureml.code out" in output
    assert not (repo / "out").exists()


def test_code_that_is_nowhere_is_said_beside_other_errors(repo: Path) -> None:
    """A job that names an unknown input and a folder that isn't there is told of both at once."""
    (repo / "job.yaml").write_text(
        JOB.replace("script: train.py", 'script: train.py, arguments: ["${{inputs.no}}"]')
    )
    output = run("generate", "repo/job.yaml", "-o", "repo/out").output
    assert "[AML045]" in output
    assert "[AML021]" in output


@pytest.mark.parametrize("made", [True, False])
def test_code_has_one_meaning_wherever_the_files_are(repo: Path, made: bool) -> None:
    """A folder of that name among the written files doesn't change what the spec's `code` names;
    inputs are alike.
    """
    (repo / "src").mkdir()
    if made:
        (repo / "out" / "src").mkdir(parents=True)
    (repo / "prompts.txt").write_text("")
    (repo / "job.yaml").write_text(
        JOB.replace("compute: gpu", "compute: gpu, inputs: {p: prompts.txt, q: {path: ./src}}")
    )
    assert run("generate", "repo/job.yaml", "-o", "repo/out").exit_code == 0
    written = yaml.safe_load((repo / "out" / "job.yml").read_text())
    assert written["code"] == "../src"
    assert [written["inputs"][name]["path"] for name in "pq"] == ["../prompts.txt", "../src"]


def test_a_script_that_is_not_in_code_yet_is_asked_for(repo: Path) -> None:
    """The last line says where the script has to be put; once it is there, only what is
    uploaded.
    """
    (repo / "src").mkdir()
    given = (
        "data: {path: train.json, tokenizer: {path: gpt2}}\noutput: {checkpoints: "
        "'azureml://datastores/a/paths/b'}\n"
    )
    (repo / "job.yaml").write_text(JOB.replace("64}", "64, duration: {steps: 9}}") + given)
    put, start = (
        "Put train.py and its modules into repo/src",
        "Start the job, which uploads repo/src:",
    )
    assert put in run("generate", "repo/job.yaml", "-o", "repo/out").output
    (repo / "src" / "train.py").write_text("")
    assert start in run("generate", "repo/job.yaml", "-o", "repo/out").output


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"training": {"global_batch": {"tokens": 1e18}}}, "1 to 10,000,000,000"),
        ({"training": {"duration": {"tokens": "999999999999T"}}}, "up to 10,000 T"),
        ({"model": {"model_type": "llama", "vocab_size": 1}}, "4 to 134,217,728"),
        ({"reliability": {"storage_gbytes_per_s": 1e-12}}, "0.01 to 100,000"),
        ({"reliability": {"node_days_between_failures": 1e-9}}, "0.01 to 1,000,000"),
        (
            {
                "cluster": {
                    "accelerator": "h100-sxm",
                    "accelerators_per_node": 8,
                    "network_gbits_per_s_per_node": 1e-9,
                }
            },
            "0.1 to 100,000",
        ),
    ],
)
def test_sizes_that_no_run_has_are_refused_with_their_range(
    repo: Path, spec: dict[str, object], said: str
) -> None:
    """The message gives both ends."""
    whole = {
        "model": "gpt2",
        "cluster": "nvidia/dgx-h100",
        "gpus": 8,
        "training": {"global_batch": 64},
        **spec,
    }
    (repo / "job.json").write_text(json.dumps(whole))
    assert said in run("plan", "repo/job.json").output


@pytest.mark.parametrize(
    "more",
    [
        {
            "framework": "huggingface",
            "model": "llama-3.1-70b",
            "training": {"global_batch": 64, "lora": {"rank": 16}},
        },
        {
            "framework": "deepspeed",
            "model": "llama-3.1-8b",
            "training": {"global_batch": 64, "kernels": "fused"},
        },
        {
            "framework": "deepspeed",
            "model": "gpt3-1.3b",
            "gpus": "8..32:8",
            "training": {"global_batch": 256},
        },
        {
            "framework": "deepspeed",
            "model": {
                "model_type": "llama",
                "hidden_size": 2048,
                "num_hidden_layers": 16,
                "num_attention_heads": 16,
            }
            | {"vocab_size": 32000},
            "cluster": {"accelerator": "a100-80gb-sxm", "accelerators_per_node": 8}
            | {"network_gbits_per_s_per_node": 1600},
            "gpus": "16..32:16",
            "training": {"global_batch": 256, "sequence_length": 512},
            "layout": {
                "data": 1,
                "tensor": 1,
                "pipeline": 1,
            },  # 16 heads in a context of 16, and no plan on 32
            "launch": {"target": "slurm", "script": "train.py"},
        },
        {
            "framework": "deepspeed",
            "deepspeed_version": "0.19.6",
            "model": "gpt2",
            "training": {"global_batch": 64},
            "layout": {"zero_stage": 3, "zero_copies": 2},
            "deepspeed_config": {"sparse_gradients": True},
        },
    ],
)
def test_files_of_a_spec_are_right_with_it(repo: Path, more: dict[str, object]) -> None:
    """LoRA, kernels, counts, also without a plan, and a release: validate agrees, with the spec and
    without.
    """
    (repo / "job.json").write_text(json.dumps({"cluster": "nvidia/dgx-h100", "gpus": 8, **more}))
    assert run("generate", "repo/job.json", "-o", "out").exit_code == 0
    for flags in ((), ("--job", "repo/job.json")):
        output = run("validate", "out", *flags).output
        assert "error:" not in output
        assert "warning:" not in output


def test_a_name_too_long_for_a_file_names_none(repo: Path) -> None:
    """A script of 5,000 characters is looked for nowhere: the line is checked, and the spec
    planned.
    """
    name = "a" * 5000 + ".py"
    (repo / "run.sh").write_text(
        f"torchrun --nproc-per-node=8 --nnodez=2 {name} --deepspeed {'b' * 5000}.json\n"
    )
    assert "--nnodez" in run("validate", "repo").output
    Path("job.yaml").write_text(JOB.replace("train.py", name))
    found = run("generate", "job.yaml", "-o", "out")
    assert found.exception is None or isinstance(found.exception, SystemExit), found.output
    assert f"{name[:20]}" in found.output
