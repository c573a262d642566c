"""Compare `dsgen validate` with azure-ai-ml's loader on AzureML jobs: `python -m
benchmarks.agreement_azureml`.

Each of our rendered jobs and of the seeded mutations of hand-written ones is asked of
`azure.ai.ml.load_job`, in this process and offline, and of `dsgen.validate`. They agree where

- the loader refuses a job and one of our findings is an error, or a note on a placeholder such as
  <name>, and
- the loader takes a job and we have no error for the moment of submission, but from rules that say
  that azure-ai-ml accepts it and only the service or the run refuses it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import dsgen
from benchmarks.azureml_mutations import BASES, mutations
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Finding, Severity

SEED: Final = 20261121
MUTATIONS: Final = 2000
RENDERED: Final = Path(__file__).parents[1] / "tests" / "golden"
_WHEN: Final = {rule.id: rule.when for rule in all_file_rules()}
_BEYOND: Final = frozenset(
    rule.id for rule in all_file_rules() if "azure-ai-ml accepts it" in rule.prevents
)


@dataclass(slots=True)
class Counts:
    """Outcome of a comparison."""

    asked: int = 0
    refused: int = 0  #: by the loader
    agreed: int = 0
    #: taken by the loader, with errors of ours that only the service or the run would give
    beyond: int = 0
    rules: Counter[str] = field(default_factory=Counter)  #: errors of ours by rule
    unexplained: list[str] = field(default_factory=list)


def loader_says(path: Path) -> str | None:
    """Why azure-ai-ml refuses a job; None where it takes it."""
    from azure.ai.ml import load_job

    try:
        load_job(str(path))
    except Exception as problem:  # whatever it raises keeps the job from being submitted
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    return None


def compare(told: str, folder: Path, counts: Counts) -> None:
    """Ask both of the job in `folder`."""
    counts.asked += 1
    refusal = loader_says(folder / "job.yml")
    found = dsgen.validate(folder)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    # a note: it is filled in before it is submitted
    to_fill = any(finding.rule == "AML052" for finding in found)
    counts.rules.update({finding.rule for finding in errors})
    counts.refused += refusal is not None
    wrong = [finding for finding in errors if _is_for_loader(finding)]
    if refusal is not None and not errors and not to_fill:
        counts.unexplained.append(f"{told}: the loader says {refusal}; we say nothing")
    elif refusal is None and wrong:
        said = "; ".join(f"{finding.rule} {finding.message}" for finding in wrong)
        counts.unexplained.append(f"{told}: the loader takes it; we say {said}")
    else:
        counts.agreed += 1
        counts.beyond += refusal is None and bool(errors)


def _is_for_loader(finding: Finding) -> bool:
    """Return whether an error claims that the loader refuses the job."""
    return _WHEN.get(finding.rule) == "submit" and finding.rule not in _BEYOND


def rendered_jobs() -> Iterator[tuple[str, Path]]:
    """The folders of the jobs that dsgen renders for AzureML."""
    for path in sorted(RENDERED.glob("*/job.yml")):
        yield f"rendered {path.parent.name}", path.parent


def compare_all(count: int = MUTATIONS, *, seed: int = SEED) -> Counts:
    """Compare the rendered jobs, the bases and `count` mutations of them."""
    counts = Counts()
    with quiet(), tempfile.TemporaryDirectory() as name:
        for told, folder in rendered_jobs():
            compare(told, folder, counts)
        folder = Path(name)
        (folder / "train.py").touch()
        jobs: list[tuple[str, Any]] = [(f"base {index}", base) for index, base in enumerate(BASES)]
        for told, job in (*jobs, *mutations(count, seed)):
            (folder / "job.yml").write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
            compare(told, folder, counts)
    return counts


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what azure-ai-ml logs and warns of."""
    import logging
    import warnings

    os.environ.setdefault("AZURE_CORE_COLLECT_TELEMETRY", "0")
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def main() -> int:
    """Print the counts and every disagreement."""
    counts = compare_all()
    print(
        f"jobs asked of both: {counts.asked}, refused by azure-ai-ml: {counts.refused}, "
        f"agreed: {counts.agreed}"
    )
    print(f"taken by azure-ai-ml, with errors of the service or the run only: {counts.beyond}")
    print(
        "errors by rule: "
        + ", ".join(f"{rule} {number}" for rule, number in sorted(counts.rules.items()))
    )
    print(f"unexplained disagreements: {len(counts.unexplained)}")
    print("\n".join(counts.unexplained))
    return 1 if counts.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
