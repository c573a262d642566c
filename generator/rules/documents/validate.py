"""From paths to findings: job specs by the rules of jobs, other documents by theirs, all of them as one submission."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...documents.document import JobSpec
from ...documents.given import Beside, look_up
from ...documents.read import read_documents
from ...documents.submission import Submission
from ...findings import Finding, InvalidJob, Severity, in_file_order
from ...spec import Job, load_with_findings
from ..check import check_job, check_pinned_fit, check_pins
from .check import check_submission

Path = str | os.PathLike[str]


def validate(paths: Iterable[Path], beside: Beside, *, job: Path | None = None) -> tuple[Finding, ...]:
    """Every finding in the documents at `paths`, in file order; `beside` and the spec at `job` are taken as true."""
    reading = read_documents(paths, consumer=beside.consumer)
    findings = list(reading.findings)
    resolved: list[Job] = []
    for document in reading.documents:
        if isinstance(document, JobSpec):
            own, problems = check_spec(document.path)
            resolved += [own] if own else []
            findings += problems
    stated = None
    if job is not None:
        stated, problems = check_spec(job)
        findings += [problem for problem in problems if problem not in findings]
    given, problems = look_up(beside, stated)
    findings += problems
    submission = Submission(documents=tuple(reading.documents), given=given, jobs=tuple(resolved))
    return in_file_order((*findings, *check_submission(submission)))


def check_spec(path: Path) -> tuple[Job | None, tuple[Finding, ...]]:
    """The job of a spec, where it can be resolved, and every finding in it, pinned keys included."""
    try:
        job, findings = load_with_findings(path)
    except InvalidJob as invalid:
        return None, invalid.findings
    findings = (*findings, *check_job(job), *check_pins(job))
    if _broken(findings):
        return None, in_file_order(findings)
    return job, in_file_order((*findings, *check_pinned_fit(job)))


def _broken(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)
