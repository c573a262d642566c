"""Compare `dsgen validate` with Slurm on batch scripts: `python -m benchmarks.agreement_slurm`, as
root.

Each rendered script, each hand-written one and seeded mutations of both are asked of `sbatch
--test-only`, on a real slurmctld with as many nodes of the kind that the job is for, and of
`dsgen.validate`, which is told the same nodes. They agree where

- sbatch refuses a script and one of our findings is an error, and
- sbatch takes a script and none of our errors says that it is refused at the submission.

What only the site knows (its partitions, features, types of GPUs) is explained by name, and
counted.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dsgen
from benchmarks.slurm_mutations import BASES, mutations
from dsgen.catalog import find_node_type
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from dsgen.units import MIB
from tests.slurm_cluster import SlurmCluster, sbatch_test_only, slurm_for

SEED: Final = 20261121
ROOT: Final = Path(__file__).parents[1]
CLUSTER: Final = "azure/standard_nd96asr_v4"  #: of the hand-written scripts
MUTATIONS: Final = 60  # of each script
_SUBJECTS: Final = ("SLM", "SUB", "FILE")  # other rules have no say in what sbatch takes
_WHEN: Final = {rule.id: rule.when for rule in all_file_rules()}
# their catalog entries count threads, which Slurm's CPUs are
#: Their catalog entries count threads, which are Slurm's CPUs.
_COUNT_THREADS: Final = frozenset({"azure", "aws", "gcp"})
_CPUS: Final = 4096  # of a node whose cores aren't known: more than any example asks for

#: What only the site knows: how sbatch says it, and the line that must be in the script.
_SITE: Final = (
    ("partition", "invalid partition|Invalid partition name", r"(?:--partition|-p)\b"),
    ("feature", "Invalid (?:preferred )?feature|node "
        "configuration is not available", r"(?:--const|-C\b)"),
    ("reservation", "reservation is invalid", r"--reserv"),
    ("node names", "Invalid node name|node "
        "configuration is not available", r"(?:--nodel|--exclude|-w|-x)"),
    ("type of GPU", "node "
        "configuration is not available", r"(?:--gres=gpu:|--gpus\S*=|-G )[A-Za-z]\w*"),
    ("licence", "Invalid license", r"--licenses"),
    ("local disk", "node configuration is not available", r"--tmp"),
    ("plug-in", "unrecognized option '--container", r"--container-"),
    ("dependency on a job that is gone", "Job dependency problem", r"--dependency=afterok:\d"),
    ("size of the cluster", "Node count specification "
        "invalid|More processors", r"(?:--nodes|-N|--ntasks|-n)\b"),
    ("tasks of a plane", "Too few processes for the requested", r"--distribution=plane"),
    ("gres of the site", "Invalid generic resource", r"--gres=(?!gpu\b)[a-z]+(?::\w+)*$"),
)  # fmt: skip


@dataclass(slots=True)
class Counts:
    """Outcome of a comparison."""

    asked: int = 0
    refused: int = 0  #: by sbatch
    agreed: int = 0
    beyond: int = 0  #: taken by sbatch, with errors of ours that come later or never
    site: Counter[str] = field(default_factory=Counter)  #: refused for what only the site knows
    rules: Counter[str] = field(default_factory=Counter)  #: errors of ours by rule
    unexplained: list[str] = field(default_factory=list)


def compare(told: str, script: Path, slurm: SlurmCluster, counts: Counts, **beside: Any) -> None:
    """Ask both of one script."""
    counts.asked += 1
    result = sbatch_test_only(script, slurm)
    said = " ".join((result.stdout + result.stderr).split())
    findings = dsgen.validate(script, **beside)
    errors = [f for f in findings if f.severity is Severity.ERROR and f.rule.startswith(_SUBJECTS)]
    counts.rules.update({finding.rule for finding in errors})
    claims = [finding for finding in errors if _WHEN.get(finding.rule) == "submit"]
    if result.returncode:
        counts.refused += 1
        site = None if errors else _site(said, script.read_text())
        if any(finding.rule == "SLM023" for finding in findings):
            site = site or "option that a plug-in may add"
        if any(
            finding.rule == "SLM034" and finding.severity is Severity.NOTE for finding in findings
        ):
            site = site or "value that is to be filled in"
        if errors:
            counts.agreed += 1
        elif site:
            counts.site[site] += 1
        else:
            counts.unexplained.append(f"{told}: sbatch says {said[:160]!r}; we say nothing")
    elif claims:
        ours = "; ".join(f"{finding.rule} {finding.message}" for finding in claims)
        counts.unexplained.append(f"{told}: sbatch takes it; we say {ours}")
    else:
        counts.agreed += 1
        counts.beyond += bool(errors)


def _site(said: str, text: str) -> str | None:
    """Return what it is that only the site knows, where a script is refused for it."""
    for name, words, line in _SITE:
        if re.search(words, said) and re.search(rf"^#SBATCH.*{line}", text, re.MULTILINE):
            return name
    return None


def rendered() -> Iterator[tuple[str, str, dsgen.Job]]:
    """The batch scripts that dsgen renders for the examples, and their jobs."""
    for path in sorted((ROOT / "tests" / "golden").glob("*/launch.sbatch")):
        yield (
            path.parent.name,
            path.read_text(),
            dsgen.load_job(ROOT / "examples" / f"{path.parent.name}.yaml"),
        )


def compare_rendered(count: int, seed: int, counts: Counts, only: int | None = None) -> None:
    """Compare the rendered scripts and `count` mutations of each; validate is told the example's
    spec.
    """
    for name, text, job in list(rendered())[:only]:
        machine = job.cluster
        cores = machine.cpu_cores or _CPUS
        sizes = {
            "cpus": cores if machine.provider in _COUNT_THREADS else 2 * cores,
            "gpus": machine.accelerators_per_node,
            "memory_mib": int((machine.host_memory_bytes or 2**40) / MIB),
            "nodes": job.nodes,
        }
        spec = ROOT / "examples" / f"{name}.yaml"
        with slurm_for(**sizes) as cluster, tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "launch.sbatch"
            for told, mutated in (("as rendered", text), *mutations(text, count, seed)):
                script.write_text(mutated)
                compare(f"{name}: {told}", script, cluster, counts, job=spec)


def compare_written(count: int, seed: int, counts: Counts) -> None:
    """Compare the hand-written scripts and `count` mutations of each; validate is told the node
    type.
    """
    node = find_node_type(CLUSTER)
    if node is None or node.cpu_cores is None or node.host_memory_bytes is None:
        raise LookupError(f"the catalog doesn't say how large {CLUSTER} is")
    memory = int(node.host_memory_bytes / MIB)
    sizes = {
        "cpus": node.cpu_cores,
        "gpus": node.accelerators_per_node,
        "memory_mib": memory,
        "nodes": 16,
    }
    with slurm_for(**sizes) as cluster, tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.sbatch"
        for index, base in enumerate(BASES):
            for told, mutated in (("as written", base), *mutations(base, count, seed + index)):
                script.write_text(mutated)
                compare(f"base {index}: {told}", script, cluster, counts, cluster=CLUSTER)


def main() -> int:
    """Print the counts and every disagreement."""
    counts = Counts()
    compare_written(MUTATIONS, SEED, counts)
    compare_rendered(MUTATIONS, SEED, counts)
    print(
        f"scripts asked of both: {counts.asked}, refused by sbatch: {counts.refused}, "
        f"agreed: {counts.agreed}"
    )
    print(f"taken by sbatch, with errors that come later: {counts.beyond}")
    print(
        "refused for what only the site knows: "
        + ", ".join(f"{name} {n}" for name, n in counts.site.most_common())
    )
    print(
        "errors by rule: "
        + ", ".join(f"{rule} {number}" for rule, number in sorted(counts.rules.items()))
    )
    print(f"unexplained disagreements: {len(counts.unexplained)}")
    print("\n".join(counts.unexplained))
    return 1 if counts.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
