"""A run that is submitted once goes on until it is finished, whatever happens; docs/long-runs.md
has the table.
"""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.long_runs.accidents import ACCIDENTS
from tests.long_runs.drill import rows
from tests.long_runs.runs import PROGRAMS, reference
from tests.needs import needs_deepspeed, needs_slurm
from tests.pages import shown_table
from tests.slurm_cluster import SlurmCluster

PAGE = Path(__file__).parents[2] / "docs" / "long-runs.md"
SAVED = PAGE.parents[1] / "templates" / "slurm" / "ends.sh.j2"
BEGIN = "<!-- written by tests/long_runs -->\n"
ACCIDENTS_DRILLED = 4  # the time limit, the fifth, takes a minute
HEAD = "| what happens | program | continue | then |\n|---|---|---|---|\n"


@needs_slurm
@pytest.mark.integration
@pytest.mark.xdist_group("long runs")
def test_ends_are_as_they_are_counted(tmp_path: Path, four_nodes: SlurmCluster) -> None:
    """After random accidents a run counts as finished when it is, loses no saved step, and leaves
    nothing running.
    """
    found = rows(four_nodes, tmp_path, range(ACCIDENTS_DRILLED), seed=3, kill_wait=5)
    assert not [row for row in found if "WRONG" in row], "\n".join(found)


@needs_slurm
@pytest.mark.integration
@pytest.mark.xdist_group("long runs")
def test_what_slurm_says_of_the_job_that_holds_a_run(
    tmp_path: Path, four_nodes: SlurmCluster
) -> None:
    """A running job holds its run, a forgotten one doesn't, and where Slurm doesn't answer nobody
    knows.
    """
    lines = SAVED.read_text().splitlines()
    first = lines.index("state_of() {")
    asks = "\n".join(
        (
            "set -euo pipefail",
            *lines[first : lines.index("}", first) + 1],
            'state_of "$1" && echo .',
        )
    )

    def state(job: str, own: str, configuration: Path = four_nodes.folder / "slurm.conf") -> str:
        environment = {
            **four_nodes.environment,
            "SLURM_CONF": str(configuration),
            "SLURM_JOB_ID": own,
        }
        done = subprocess.run(
            ["timeout", "30", "bash", "-c", asks, "-", job],
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else "unknown"

    sleeps = (
        "sbatch",
        "--parsable",
        "--ntasks=1",
        "--mem=100",
        f"--chdir={tmp_path}",
        "--wrap=sleep 600",
    )
    jobs = [four_nodes.run(*sleeps).stdout.strip() for _ in range(2)]
    try:
        deadline = time.monotonic() + 60
        while state(jobs[0], jobs[1]) != "RUNNING\n.\n" and time.monotonic() < deadline:
            time.sleep(0.2)
        assert state(jobs[0], jobs[1]) == "RUNNING\n.\n"
        assert state("4000000", jobs[1]) == ".\n"
        assert state(jobs[0], "4000000") == "unknown"
        gone = tmp_path / "slurm.conf"
        text = (four_nodes.folder / "slurm.conf").read_text()
        gone.write_text(
            text.replace("SlurmctldPort=", "SlurmctldTimeout=5\nMessageTimeout=2\nSlurmctldPort=1")
        )
        assert state(jobs[0], jobs[1], gone) == "unknown"
    finally:
        four_nodes.run("scancel", *jobs)


@needs_slurm
@needs_deepspeed
@pytest.mark.integration
@pytest.mark.xdist_group("long runs")
def test_runs_go_on_whatever_happens(
    tmp_path: Path, four_nodes: SlurmCluster, update_golden: bool
) -> None:
    """Whatever happens to it, a run does exactly its steps on one curve, or stops and says so; the
    table is true.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        folders = (tmp_path / f"reference-{number}" for number in range(len(PROGRAMS)))
        losses = dict(zip(PROGRAMS, pool.map(reference, folders, PROGRAMS), strict=True))
    with ThreadPoolExecutor(max_workers=5) as pool:  # three of them wait for a time limit
        rows = [
            pool.submit(
                accident.row, four_nodes, tmp_path / f"run-{number}", losses[accident.program]
            )
            for number, accident in enumerate(ACCIDENTS)
        ]
    ended = zip(ACCIDENTS, rows, strict=True)
    failed = [
        f"{a.what}, {a.program}, {a.way}: {row.exception()}" for a, row in ended if row.exception()
    ]
    assert not failed, "\n\n".join(failed)
    table = HEAD + "".join(f"{row.result()}\n" for row in rows)
    assert table == shown_table(PAGE, BEGIN, table, update_golden)
