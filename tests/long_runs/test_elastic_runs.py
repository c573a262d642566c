"""A run that was begun on four nodes goes on on two, with the same batch and on the same curve of
losses.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.long_runs.runs import INTERVAL, Watched, reference, whole_and_continuous
from tests.needs import needs_deepspeed, needs_slurm
from tests.slurm_cluster import SlurmCluster
from tests.warm_python import warm_python

DOWN = "dsgen-node4"
HELD = {"HOLDS_AT": str(INTERVAL + 2)}


@needs_slurm
@needs_deepspeed
@pytest.mark.integration
@pytest.mark.xdist_group("long runs")
def test_a_run_goes_on_on_another_count(tmp_path: Path, four_nodes: SlurmCluster) -> None:
    """Without one of four nodes a run goes on on two; with ZeRO's states after the conversion that
    it asks for.
    """
    runs = [
        Watched(
            cluster=four_nodes,
            folder=tmp_path / name,
            program=program,
            gpus="2..4",
            environment=HELD,
        )
        for name, program in (("zero", "DeepSpeed"), ("whole", "a script's own"))
    ]
    with ThreadPoolExecutor() as pool:
        losses = [
            pool.submit(reference, tmp_path / f"reference-{number}", run.program)
            for number, run in enumerate(runs)
        ]
        for run in runs:
            run.write()
            run.submit()
        for run in runs:
            run.wait((run.folder / "losses.died").exists)
        with down(four_nodes):
            list(pool.map(Watched.wait_for_end, runs))
            convert(runs[0])
            runs[0].submit()
            runs[0].wait_for_end()
    for run, expected in zip(runs, losses, strict=True):
        assert re.findall(r"running the plan for (\d) nodes", run.said())[0] == "4", run.said()
        assert re.findall(r"running the plan for (\d) nodes", run.said())[-1] == "2", run.said()
        assert len(run.attempts()) == 2, run.said()
        assert run.attempts()[1] == INTERVAL, run.said()
        whole_and_continuous(run, expected.result())


@contextmanager
def down(cluster: SlurmCluster) -> Iterator[None]:
    """One node doesn't answer."""
    for state in ("down", "drain"):  # drained, it is not taken again when its slurmd reports
        cluster.run("scontrol", "update", f"nodename={DOWN}", f"state={state}", "reason=test")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", f"nodename={DOWN}", "state=resume")


def convert(run: Watched) -> None:
    """Do what the launch script says."""
    (told,) = set(
        re.findall(
            r"^  python (-m deepspeed.checkpoint.ds_to_universal .*)$", run.said(), re.MULTILINE
        )
    )
    assert re.search(
        r"was saved by 4 data-parallel ranks, but this plan has 2: convert it", run.said()
    )
    done = subprocess.run(
        f"{warm_python()} {told}", shell=True, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
