"""What a submission still lacks: named by its key, and never where the script's own arguments give
it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen.job.needs import CONDITIONS, default_image, gated, missing, not_ready, written_for
from dsgen.job.schema import load_schema
from dsgen.programs.frameworks import FRAMEWORKS
from tests.jobs import job

DATA = {"path": "/d", "tokenizer": {"path": "/t"}}
READY: dict[str, Any] = {
    "data": DATA,
    "output": {"checkpoints": "/c"},
    "training__duration": {"steps": 10},
}


def keys(**spec: Any) -> list[str]:
    """The keys that a small job still needs."""
    return [lack.key for lack in missing(job(**spec))]


def test_a_tokenizer_may_be_given_by_its_path_alone() -> None:
    """`tokenizer: NAME` is short for `tokenizer: {path: NAME}`."""
    short = job(data={"path": "/d", "tokenizer": "meta-llama/Llama-3.1-70B"})
    assert short.data.tokenizer.path == "meta-llama/Llama-3.1-70B"


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_a_job_with_data_tokenizer_and_output_is_ready(framework: str) -> None:
    """With data, tokenizer, checkpoints and a length, nothing is missing in any framework."""
    assert keys(framework=framework, **READY) == []


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("megatron-lm", ["training.duration", "data.path", "data.tokenizer", "output.checkpoints"]),
        (
            "megatron-deepspeed",
            ["training.duration", "data.path", "data.tokenizer", "output.checkpoints"],
        ),
        ("huggingface", ["data.path", "data.tokenizer", "output.checkpoints"]),
        ("deepspeed", ["data.path", "output.checkpoints"]),
    ],
)
def test_a_bare_job_lacks_all_that_its_script_needs(framework: str, expected: list[str]) -> None:
    """Without any of it, each need is named once; what isn't saved can't be resumed, so resume
    isn't named too.
    """
    assert keys(framework=framework) == expected


@pytest.mark.parametrize(
    ("framework", "arguments"),
    [
        (
            "megatron-lm",
            "--mock-data --tokenizer-type NullTokenizer --save c --load c --train-iters 5",
        ),
        ("megatron-lm", "--data-path=/d --tokenizer-type=X --save=c --load=c --train-samples=5"),
        (
            "megatron-deepspeed",
            "--train-data-path /d --tokenizer-type X --save c --load c --train-tokens 5",
        ),
        ("huggingface", "--dataset_name x --model_name_or_path m --output_dir o"),
        ("huggingface", "--my_training_data x --base-model m --save_dir o"),
        ("huggingface", "--config run.yaml"),
        ("deepspeed", "--corpus x --ckpt-folder o"),
    ],
)
def test_arguments_that_give_it_are_enough(framework: str, arguments: str) -> None:
    """Data, tokenizer, folders and length may come from launch.arguments, or from a file that these
    name.
    """
    assert keys(framework=framework, launch__arguments=arguments.split()) == []


def test_saving_without_loading_begins_again() -> None:
    """--save without --load, and --load from another folder, leave every start at step 0."""
    bare = {**READY, "output": {}}
    assert keys(**bare, launch__arguments=["--save", "c"]) == ["output.resume"]
    (lack,) = missing(job(**READY, launch__arguments=["--load", "/old"]))
    begins = "--load /old is not --save /c: every start begins there"
    assert (
        str(lack) == f"no resume ({begins}; --pretrained-checkpoint FOLDER in its place is for "
        "the first start alone)"
    )


@pytest.mark.parametrize(
    ("framework", "instead"),
    [
        (
            "megatron-lm",
            "; --pretrained-checkpoint FOLDER in its place is for the first start alone",
        ),
        ("megatron-deepspeed", ": take --finetune out when the run has saved"),
    ],
)
def test_fine_tuning_that_begins_anew_does_not_resume(framework: str, instead: str) -> None:
    """With Megatron's --finetune every start is at step 0, which is said with another way, unless
    that is asked for.
    """
    tuned = {**READY, "framework": framework, "launch__arguments": ["--finetune"]}
    (lack,) = missing(job(**tuned))
    assert str(lack) == f"no resume (every start with --finetune is at step 0{instead})"
    assert keys(**{**tuned, "output": {**READY["output"], "resume": False}}) == []


def test_weights_of_the_first_start_alone_resume() -> None:
    """Megatron-LM's --pretrained-checkpoint is read while the run's own folder has no
    checkpoint.
    """
    assert keys(**READY, launch__arguments=["--pretrained-checkpoint", "/weights"]) == []


def test_what_the_target_needs_is_named() -> None:
    """AzureML needs an environment, outside Azure a compute; Slurm needs nothing, plain
    machines need hosts, or the file that names them, where there are several.
    """
    assert keys(**READY, launch__target="slurm") == []
    own = ["launch.azureml.compute", "launch.azureml.environment"]
    assert keys(**READY, launch__target="azureml") == own
    azure = "azure/standard_nd96amsr_a100_v4"
    assert keys(**READY, launch__target="azureml", cluster=azure) == own[1:]
    assert keys(**READY, launch__target="shell", gpus=8) == []
    assert keys(**READY, launch__target="shell") == ["launch.shell.hosts"]
    assert keys(**READY, launch__target="shell", launch__shell={"hostfile": "x"}) == []


def test_a_task_of_skypilot_needs_its_packages() -> None:
    """The stock images of SkyPilot have no torch: a task has an image, or commands that install the
    packages.
    """
    (lack,) = missing(job(**READY, launch__target="skypilot"))
    assert str(lack) == "no image (set launch.skypilot.image, or setup to install the packages)"
    for given in (
        {"image": "docker:nvcr.io/nvidia/pytorch:25.06-py3"},
        {"setup": "pip install deepspeed"},
    ):
        assert keys(**READY, launch__target="skypilot", launch__skypilot=given) == []


def test_every_condition_of_the_schema_is_known() -> None:
    """What the schema says of keys that a submission needs is a condition that is looked at."""
    targets = load_schema()["$defs"]["launch"]["properties"].values()
    keys_of = [key for target in targets for key in target.get("properties", {}).values()]
    said = {key["neededToSubmit"] for key in keys_of if "neededToSubmit" in key}
    assert said
    assert said <= set(CONDITIONS)


def test_the_line_names_each_with_what_to_do() -> None:
    """One line says all of it."""
    expected = "Not ready to submit: no data (set data.path), no tokenizer (set data.tokenizer)"
    assert not_ready(missing(job(**{**READY, "data": {}}))) == expected


def test_generate_says_it_in_place_of_the_command(tmp_path: Path) -> None:
    """What is missing is below the files, where the command would be, and in plan.json; the status
    stays 0.
    """
    spec = {"model": "gpt2", "cluster": "dgx-a100-80gb", "gpus": 8, "training": {"global_batch": 8}}
    (tmp_path / "job.yaml").write_text(
        json.dumps(spec | {"framework": "deepspeed", "launch": {"script": "x.py"}})
    )
    command = [sys.executable, "-m", "dsgen", "job.yaml", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    expected = (
        "Not ready to submit: no data (set data.path), no folder for checkpoints (set "
        "output.checkpoints)"
    )
    assert f"launch.sbatch, plan.json (written) Next {expected} " in " ".join(done.stdout.split())
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert [lack["key"] for lack in plan["missing"]] == ["data.path", "output.checkpoints"]
    assert (
        "Written for torch >=2.0.0, DeepSpeed 0.19.8."
        in (tmp_path / "out" / "launch.sbatch").read_text()
    )


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_files_say_what_they_are_written_for(framework: str) -> None:
    """Every framework's plan names a version of its own program, and DeepSpeed's is the job's."""
    versions = written_for(job(framework=framework, deepspeed_version="0.16.9"))
    own = {
        "megatron-lm": "Megatron-LM",
        "megatron-bridge": "Megatron-Bridge",
        "megatron-deepspeed": "Megatron-DeepSpeed",
        "huggingface": "transformers",
    }
    assert own.get(framework, "DeepSpeed") in versions
    assert versions.get("DeepSpeed", "0.16.9") == "0.16.9"


@pytest.mark.parametrize(
    ("framework", "image"),
    [("megatron-lm", "rocm/primus:v26.7"), ("deepspeed", "rocm/pytorch:latest")],
)
def test_the_image_has_what_the_framework_imports(framework: str, image: str) -> None:
    """AMD's image of PyTorch has no Transformer Engine, which Megatron-LM's layers are."""
    assert default_image(job(framework=framework, cluster="8xmi300x", gpus=8)) == image


LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("launch", "name"),
    [
        ({}, LLAMA),
        ({"slurm": {"partition": "HF_TOKEN"}}, LLAMA),
        ({"environment": {"HF_HUB_OFFLINE": "0"}}, LLAMA),
        ({"environment": {"HF_TOKEN_PATH": "/secure/token"}}, None),
        ({"environment": {"TRANSFORMERS_OFFLINE": "1"}}, None),
        ({"slurm": {"setup": ["export HF_HUB_OFFLINE=1"]}}, None),
        ({"target": "kubernetes", "kubernetes": {"variables_from": ["hub/token:HF_TOKEN"]}}, None),
        ({"target": "skypilot", "skypilot": {"passed_variables": ["HF_TOKEN"]}}, None),
    ],
)
def test_a_gated_model_is_read_with_a_token_or_from_disk(
    launch: dict[str, Any], name: str | None
) -> None:
    """A gated model is named unless a variable of the run has its token, or keeps the run from
    asking the Hub.
    """
    given = {"target": "slurm", **launch, "arguments": ["--model_name_or_path", LLAMA]}
    assert gated(job(framework="huggingface", launch=given)) == name


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Llama-4-Scout-17B-16E",
        "mistralai/Mistral-7B-v0.1",
        "mistralai/Mixtral-8x7B-v0.1",
        "CohereForAI/c4ai-command-r-v01",
        "CohereLabs/c4ai-command-r-v01",
    ],
)
def test_families_with_terms_are_gated(name: str) -> None:
    """Models whose owners ask for terms to be accepted are gated, under each name of the owner, and
    copies aren't.
    """
    assert gated(job(data={"tokenizer": {"path": name}})) == name
    assert gated(job(data={"tokenizer": {"path": f"copies/{name.partition('/')[2]}"}})) is None
