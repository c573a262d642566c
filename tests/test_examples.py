"""Every example: planned, rendered, compared with its golden files and shown to the programs that
will read them.
"""

from __future__ import annotations

import difflib
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dsgen
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.launchers import LAUNCHERS
from tests.deepspeed_parser import batch_triple
from tests.examples import FOLDER, NAMES, job_for_target, plan_for_target, plans_examples
from tests.needs import needs_azure, needs_deepspeed, needs_shellcheck, needs_slurm
from tests.planned import complaints, meant_triple, parse_plan
from tests.programs.places import put, shell_complaints
from tests.slurm_cluster import sbatch_test_only, slurm_for

GOLDEN = Path(__file__).parent / "golden"
#: What the specs say that write no DeepSpeed config.
_WITHOUT = ("framework: megatron-lm", "framework: megatron-bridge", "sharding: fsdp2")
DEEPSPEED = [
    name
    for name in NAMES
    if not any(words in (FOLDER / f"{name}.yaml").read_text() for words in _WITHOUT)
]

#: Launch targets that no example has.
_SPECS = [yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in NAMES]
_SHOWN = {spec.get("launch", {}).get("target", "slurm") for spec in _SPECS}
#: Examples of the Hugging Face Trainer.
TRAINERS = [
    name for name, spec in zip(NAMES, _SPECS, strict=True) if spec.get("framework") == "huggingface"
]
WITHOUT_EXAMPLE = [target for target in LAUNCHERS if target not in _SHOWN]


def test_examples_cover_the_ground() -> None:
    """There are at least twelve, for every framework."""
    jobs = [dsgen.load_job(FOLDER / f"{name}.yaml") for name in NAMES]
    assert len(jobs) >= 12
    assert {job.framework.name for job in jobs} == set(FRAMEWORKS)
    assert any(job.model.experts > 0 for job in jobs)


@plans_examples
@pytest.mark.parametrize("name", NAMES)
def test_plan_is_sound(name: str) -> None:
    """The chosen plan satisfies both identities, breaks no rule and fits with its headroom."""
    plan = plan_for_target(name)
    assert plan.layout.world == plan.job.gpus
    assert plan.layout.global_batch == plan.job.training.global_batch
    assert not [f for f in plan.findings if f.severity.value == "error"]
    assert plan.uncertainty.required.high <= plan.memory.capacity_bytes * (1 - plan.job.headroom)


@plans_examples
@pytest.mark.parametrize(
    ("name", "target"), list(zip(NAMES, itertools.cycle(LAUNCHERS), strict=False))
)
def test_the_target_decides_no_layout(name: str, target: str) -> None:
    """A search for the same job with another launch target chooses the same layout, with the same
    estimates.
    """
    searched = dsgen.search(job_for_target(name, target), top=1)
    assert not isinstance(searched, dsgen.Infeasible)
    [found], known = searched.plans, plan_for_target(name)
    assert (found.layout, found.memory, found.step_time) == (
        known.layout,
        known.memory,
        known.step_time,
    )


@plans_examples
@pytest.mark.parametrize("target", [None, *LAUNCHERS])
@pytest.mark.parametrize("name", NAMES)
def test_files_validate_clean(name: str, target: str | None, tmp_path: Path) -> None:
    """`dsgen validate` has nothing against the files of any example, launched its own way or any
    other.
    """
    spec = FOLDER / f"{name}.yaml"
    told = complaints(plan_for_target(name, target), tmp_path, specs=(None, spec))
    assert [finding for finding in told if finding.where.path != str(spec)] == []


@plans_examples
@pytest.mark.parametrize(
    ("name", "target"),
    [*((name, None) for name in NAMES), *((NAMES[0], target) for target in WITHOUT_EXAMPLE)],
)
def test_golden_files(name: str, target: str | None, update_golden: bool) -> None:
    """What is rendered is, byte for byte, what was reviewed; a missing or surplus file is a
    failure. So are the files of each launcher, whether an example has it or not.
    """
    folder = GOLDEN / (name if target is None else f"{name}-on-{target}")
    plan = plan_for_target(name, target)
    rendered = {file.path: file.text for file in dsgen.render(plan)}
    if update_golden:
        put(dsgen.render(plan), folder)
        for stale in {path.name for path in folder.iterdir()} - set(rendered):
            (folder / stale).unlink()
    expected = {path.name: path.read_bytes().decode() for path in folder.glob("*")}
    changes = [
        line
        for path in sorted(set(expected) | set(rendered))
        for line in difflib.unified_diff(
            expected.get(path, "").splitlines(),
            rendered.get(path, "").splitlines(),
            path,
            path,
            lineterm="",
        )
    ]
    assert (changes, expected) == ([], rendered)


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("name", DEEPSPEED)
def test_deepspeed_reads_the_planned_batch(name: str) -> None:
    """DeepSpeed's own parser accepts the JSON at the real world size, with the batch triple that
    the plan means.
    """
    plan = plan_for_target(name)
    parsed = parse_plan(plan)
    assert batch_triple(parsed) == meant_triple(plan)
    assert parsed.zero_config.stage == plan.layout.zero_stage


@plans_examples
@needs_shellcheck
@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_clean(name: str, tmp_path: Path) -> None:
    """bash -n and shellcheck have nothing to say about the example's own script, nor its Slurm and
    ssh scripts.
    """
    for target in (None, "slurm", "shell"):
        folder = tmp_path / str(target)
        put(dsgen.render(plan_for_target(name, target)), folder)
        scripts = [path for path in folder.iterdir() if path.suffix in (".sbatch", ".sh")]
        assert not scripts or shell_complaints(*scripts) == []


@needs_azure
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_azureml_loads_the_job(name: str, tmp_path: Path) -> None:
    """azure-ai-ml accepts every example as a command job, on the planned nodes and processes."""
    from azure.ai.ml import load_job

    plan = plan_for_target(
        name, None if plan_for_target(name).job.launch.target == "azureml" else "azureml"
    )
    put(dsgen.render(plan), tmp_path)
    loaded = load_job(tmp_path / "job.yml")
    assert loaded.resources.instance_count == plan.job.nodes
    per_node = min(plan.job.gpus, plan.job.cluster.accelerators_per_node)
    assert loaded.distribution.process_count_per_instance == per_node


@needs_slurm
@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_slurm_takes_the_script(name: str, tmp_path: Path) -> None:
    """A real Slurm with the example's nodes accepts its default script at the real size."""
    plan = plan_for_target(name, "slurm")
    cluster = plan.job.cluster
    put(dsgen.render(plan), tmp_path)
    memory_mib = int((cluster.host_memory_bytes or 2**40) / 2**20)
    with slurm_for(
        cpus=cluster.cpu_cores or 64,
        gpus=cluster.accelerators_per_node,
        memory_mib=memory_mib,
        nodes=plan.job.nodes,
    ) as slurm:
        answer = sbatch_test_only(tmp_path / "launch.sbatch", slurm)
    assert answer.returncode == 0, answer.stderr


def test_library_example_runs() -> None:
    """The example of use as a library prints a plan for each number of GPUs until one is done in
    time.
    """
    script, spec = FOLDER / "library" / "gpus.py", FOLDER / "llama-3-70b-deepspeed.yaml"
    done = subprocess.run(
        [sys.executable, str(script), str(spec), "5"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) > 1 and all("GPUs: " in line for line in lines)


@pytest.mark.parametrize("name", TRAINERS)
def test_every_example_of_the_trainer_has_fsdp2(name: str, tmp_path: Path) -> None:
    """The Trainer's examples are planned with FSDP2 as well, and nothing is found in what is
    written.
    """
    sharded = {"training.sharding": "fsdp2"}
    job = dsgen.load_job(FOLDER / f"{name}.yaml", overrides=sharded)
    found = dsgen.search(job, top=1)
    assert isinstance(found, dsgen.SearchResult)
    for file in dsgen.render(found.plans[0]):
        (tmp_path / file.path).write_text(file.text, encoding="utf-8")
    assert dsgen.validate(tmp_path) == ()
