"""The cluster that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm_cluster import SlurmCluster, running_slurm

#: A job that queues again waits for as long as its credentials hold.
FAST = ("AuthInfo=cred_expire=5", "KillWait=5")


@pytest.fixture(scope="session")
def four_nodes() -> Iterator[SlurmCluster]:
    """Four nodes with four GPUs each, of which a run takes one on two nodes: Slurm packs them, and
    leaves two free.
    """
    with running_slurm(nodes=4, gpus=4, cpus=8, settings=FAST) as running:
        yield running
