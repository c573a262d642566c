"""Kubernetes, as one record."""

from __future__ import annotations

from typing import Final

from ...submission.record import DocumentKind, ProgramRecord, Rules

KUBERNETES: Final = ProgramRecord(
    name="kubernetes",
    kinds=(
        DocumentKind(
            name="Kubernetes job",
            reader="programs.kubernetes.job:read_file",
            references="programs.launching.references:references_of",
        ),
    ),
    rules=(
        Rules(
            folder="programs.kubernetes",
            modules=("rules", "folders"),
            when=lambda submission: submission.has("Kubernetes job"),
        ),
    ),
    job_rules=("programs.kubernetes.job_rules",),
    launcher="programs.kubernetes.write:LAUNCHER",
)
