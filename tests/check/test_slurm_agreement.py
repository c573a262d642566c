"""Our findings on batch scripts and the real sbatch agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dsgen
from benchmarks.agreement_slurm import Counts, compare_rendered, compare_written
from dsgen.catalog import find_node_type
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from dsgen.programs.slurm.rules.script import SET_BY
from dsgen.text.hjson.edits import apply_edits
from dsgen.units import MIB
from tests.case import NAMES, Case, read_case
from tests.needs import needs_slurm
from tests.slurm_cluster import SlurmCluster, running_slurm, sbatch_test_only, slurm_for

CASES = [
    case
    for case in map(read_case, filter(re.compile("SLM").match, NAMES))
    if "job.sbatch" in case.bad
]
WHEN = {rule.id: rule.when for rule in all_file_rules() if rule.severity is Severity.ERROR}
NODE = "azure/standard_nd96asr_v4"
#: Cases of such a rule that sbatch takes, and torchrun fails on.
LATER = {"SLM005_ranks"}


@pytest.mark.integration
@needs_slurm
def test_sbatch_and_validate_agree() -> None:
    """Hand-written scripts, rendered ones and mutations of both: no disagreement that isn't
    explained by name.
    """
    counts = Counts()
    compare_written(8, 11, counts)
    compare_rendered(8, 11, counts, only=2)
    assert counts.unexplained == []
    assert counts.asked == 7 * 9 + 2 * 9
    assert 20 < counts.refused < counts.asked


@pytest.mark.integration
@needs_slurm
def test_bad_cases_fare_with_sbatch_as_their_rule_says(tmp_path: Path) -> None:
    """sbatch refuses the bad case of a rule that says so, and takes the bad cases of the others and
    every good one.
    """
    node = find_node_type(NODE)
    assert node is not None
    assert node.host_memory_bytes is not None
    sizes = {
        "cpus": 96,
        "gpus": node.accelerators_per_node,
        "memory_mib": int(node.host_memory_bytes / MIB),
    }
    wrong: list[str] = []
    with slurm_for(**sizes, nodes=16) as slurm:
        for case in CASES:
            if case.name in SITE:
                continue
            bad, good = (case.write(part, tmp_path / case.name / part) for part in ("bad", "good"))
            refused = (
                case.name not in LATER and WHEN.get(case.rule) == "submit" and _has_error(case, bad)
            )
            for folder, expected in ((bad, refused), (good, False)):
                told = sbatch_test_only(folder / "job.sbatch", slurm)
                if (told.returncode != 0) != expected:
                    wrong.append(f"{case.name} {folder.name}: {told.stderr.strip()[:200]}")
    assert wrong == []


#: Cases whose scripts name a partition, a type of GPU, a job or a plug-in that the test's cluster
#: doesn't have, that are submitted with options of sbatch's command line, or that are to be filled
#: in first.
SITE = frozenset(
    {
        "SLM013_partition",
        "SLM019",
        "SLM021",
        "SLM023",
        "SLM023_plugin",
        "SLM027_form",
        "SLM029_form",
        "SLM029_turned",
        "SLM044_submitted",
        "SLM052",
        "SLM055",
        "SLM055_dots",
        "SLM056",
        "SLM062",
    }
)


def _has_error(case: Case, bad: Path) -> bool:
    """Whether the case's own rule finds an error in it, as some find warnings too."""
    found = dsgen.validate(bad, cluster=case.flags[1] if case.flags else None)
    return any(f.rule == case.rule and f.severity is Severity.ERROR for f in found)


#: Options of real jobs; what each of them has Slurm set is looked up in the rule's table.
ASKED = (
    "--nodes=1",
    "--gres=gpu:1",
    "--cpus-per-task=2",
    "--gpus=1",
    "--gpus-per-node=1",
    "--ntasks=1",
    "--ntasks-per-node=1",
    "--mem=100",
    "--mem-per-cpu=10",
)


def run_job(slurm: SlurmCluster, folder: Path, option: str, log: str = "job.out") -> str:
    """The state in which a job ends that prints its environment."""
    script = folder / "job.sbatch"
    script.write_text(
        f"#!/bin/bash\n#SBATCH {option}\n#SBATCH --output={log}\nmkdir -p "
        "logs\ntouch started\nenv\n"
    )
    job = slurm.run("sbatch", "--parsable", script.name, cwd=folder).stdout.strip()
    return slurm.finished(job)["JobState"]


@pytest.mark.integration
@needs_slurm
def test_slurm_sets_variables_only_for_their_options(tmp_path: Path) -> None:
    """In a real job a variable of SLM058's table is set if and only if one of its options is
    given.
    """
    with running_slurm(nodes=1, gpus=2) as slurm:
        for option in ASKED:
            assert run_job(slurm, tmp_path, option) == "COMPLETED"
            lines = (tmp_path / "job.out").read_text(encoding="utf-8").splitlines()
            found = {line.partition("=")[0] for line in lines} & set(SET_BY)
            assert found == {
                name for name, options in SET_BY.items() if option.partition("=")[0] in options
            }, option


@pytest.mark.integration
@needs_slurm
def test_a_job_whose_log_folder_is_missing_fails_before_its_script(tmp_path: Path) -> None:
    """What SLM020 says: the job fails, and not even the script's mkdir runs."""
    with running_slurm(nodes=1, gpus=0) as slurm:
        assert run_job(slurm, tmp_path, "--nodes=1", log="logs/%j.out") == "FAILED"
    assert not (tmp_path / "started").exists()


@pytest.mark.integration
@needs_slurm
def test_sbatch_takes_what_is_mended(tmp_path: Path) -> None:
    """Where `--fix` has an answer for a script that sbatch refuses, sbatch takes the mended
    script.
    """
    mended: list[str] = []
    with slurm_for(cpus=96, gpus=8, memory_mib=900 * 1024, nodes=16) as slurm:
        for case in CASES:
            script = case.write("bad", tmp_path / case.name) / "job.sbatch"
            edits = [edit for finding in dsgen.validate(script) for edit in finding.edits]
            if not edits:
                continue
            (tmp_path / "job.sbatch").write_text(
                apply_edits(script.read_text(encoding="utf-8"), edits), encoding="utf-8"
            )
            assert sbatch_test_only(script, slurm).returncode != 0, case.name
            assert sbatch_test_only(tmp_path / "job.sbatch", slurm).returncode == 0, case.name
            mended.append(case.name)
    assert len(mended) >= 8


@pytest.mark.integration
@needs_slurm
def test_a_step_fares_as_the_rules_of_steps_say(tmp_path: Path) -> None:
    """srun passes over its own --ntasks-per-node (SLM064), and gets no node or GPU beyond its job
    (SLM065, 066).
    """
    calls = (
        "--ntasks-per-node=1",
        "--ntasks=1 --ntasks-per-node=1",
        "--nodes=2 --ntasks=2",
        "--gpus-per-node=2",
    )
    # Those that ask for too much may wait for ever.
    waits = ["", "", "timeout 10 ", "timeout 10 "]
    steps = "".join(
        f"{waits[index]}srun {words} echo step {index}\n" for index, words in enumerate(calls)
    )
    script = tmp_path / "job.sbatch"
    block = "#SBATCH --nodes=1 --ntasks-per-node=2 --gpus-per-node=1 --output=job.out\n"
    script.write_text(f"#!/bin/bash\n{block}{steps}")
    with running_slurm(nodes=2, gpus=2) as slurm:
        job = slurm.run("sbatch", "--parsable", script.name, cwd=tmp_path).stdout.strip()
        slurm.finished(job)
    told = (tmp_path / "job.out").read_text(encoding="utf-8").splitlines()
    assert [told.count(f"step {index}") for index in range(len(calls))] == [2, 1, 0, 0], told
