"""What is written for Kubernetes and SkyPilot, against the schemas that their projects publish:
whatever the spec.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import yaml

import dsgen
from benchmarks.round_trip import spec_of
from dsgen.facts.shapes import AS_WRITTEN, differences
from dsgen.findings import InvalidJob
from dsgen.job.records import Output
from dsgen.programs.launchers import LAUNCHERS, launch_files
from dsgen.programs.program import RenderedFile
from tests.examples import NAMES, plan_for_target, plans_examples
from tests.programs.cluster_schemas import validator
from tests.programs.hand_built import plan, program

SEED = 20261122
KINDS = ("PyTorchJob", "TrainJob", "JobSet")


def complaints(files: tuple[RenderedFile, ...]) -> list[str]:
    """What the schema has against the jobs and tasks among files, by jsonschema and by our own
    reading.
    """
    found: list[str] = []
    for file in files:
        for part in yaml.safe_load_all(file.text) if file.path in ("job.yaml", "task.yaml") else ():
            name, kind = (
                ("skypilot", "task") if file.path == "task.yaml" else ("kubernetes", part["kind"])
            )
            if kind != "ConfigMap":
                found += [error.message for error in validator(name, kind).iter_errors(part)]
                found += [problem.pointer for problem in differences(part, name, kind, AS_WRITTEN)]
    return found


@plans_examples
@pytest.mark.parametrize("name", NAMES)
def test_every_example_passes(name: str) -> None:
    """Every example, launched on Kubernetes as each kind of job and by SkyPilot, is what the
    schemas accept.
    """
    for target, options in (*(("kubernetes", {"kind": kind}) for kind in KINDS), ("skypilot", {})):
        made = plan_for_target(name)
        launched = replace(
            made.job, launch=replace(made.job.launch, target=target, options=options)
        )
        assert complaints(dsgen.render(replace(made, job=launched))) == []


def test_random_specs_pass() -> None:
    """So are 150 seeded specs with odd values in `launch`, those that are accepted."""
    rng, passed = random.Random(SEED), 0
    while passed < 150:
        spec: dict[str, Any] = spec_of(rng)
        if spec["launch"]["target"] not in ("kubernetes", "skypilot"):
            continue
        try:
            job, _ = dsgen.check_job({**spec, "framework": "deepspeed"})
        except InvalidJob:
            continue
        built = program()
        made = plan(job.launch.target, name=job.name, gpus=8 * rng.choice((1, 2, 16)))
        launched = replace(made.job, launch=job.launch)
        assert complaints(launch_files(replace(made, job=launched), built)) == [], spec["launch"]
        passed += 1


@pytest.mark.parametrize(
    ("target", "options"),
    [("kubernetes", {"volumes": ["a:/b"]}), ("skypilot", {"buckets": ["s3://a:/b"]})],
)
@pytest.mark.parametrize(
    ("folder", "kept"), [("/b/runs", True), ("/b", True), ("/bc", False), ("/", False)]
)
def test_a_folder_that_goes_with_the_machine_is_named(
    target: str, options: Any, folder: str, kept: bool
) -> None:
    """Checkpoints on no mounted volume are named in the file's header, and for the line after the
    plan's.
    """
    made = plan(target, options=options)
    saving = replace(made, job=replace(made.job, output=Output(checkpoints=folder)))
    (file,) = launch_files(saving, program())[:1]
    assert (
        f"output.checkpoints {folder} is on no mounted volume" in " ".join(file.text.split(" # "))
    ) is not kept
    assert ([*LAUNCHERS[target].lost(saving)] == []) is kept
