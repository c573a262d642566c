"""A run that is submitted once goes on until it is finished, whatever happens; docs/long_runs.md has the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.long_runs.runs import INTERVAL, STEPS, Watched, reference, whole_and_continuous
from tests.needs import needs_deepspeed, needs_slurm
from tests.slurm_cluster import SlurmCluster, running_slurm

pytestmark = pytest.mark.integration
#: A job that queues again waits for as long as its credentials hold.
FAST = ("AuthInfo=cred_expire=5", "KillWait=5")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Four nodes with a GPU each."""
    with running_slurm(nodes=4, gpus=1, cpus=2, settings=FAST) as running:
        yield running


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """The losses without an interruption, by framework."""
    folder = tmp_path_factory.mktemp("reference")
    return {name: reference(folder / name, name) for name in ("deepspeed", "huggingface")}


@needs_slurm
@needs_deepspeed
def test_a_killed_rank(tmp_path: Path, cluster: SlurmCluster, references: dict[str, dict[int, float]]) -> None:
    """The job queues again and goes on from the last checkpoint."""
    run = Watched(cluster=cluster, folder=tmp_path / "killed", framework="deepspeed", environment={"DIES_AT": "14"})
    run.write()
    run.submit()
    run.wait_for_end()
    print(run.said()[-3000:])
    assert run.attempts() == [0, 12]
    whole_and_continuous(run, references["deepspeed"])
