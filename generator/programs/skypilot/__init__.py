"""SkyPilot, as one record."""

from __future__ import annotations

from typing import Final

from ...submission.record import DocumentKind, ProgramRecord, Rules

SKYPILOT: Final = ProgramRecord(
    name="skypilot",
    kinds=(
        DocumentKind(
            name="SkyPilot task",
            reader="programs.skypilot.read:read_file",
            references="programs.launching.references:references_of",
        ),
    ),
    rules=(
        Rules(
            folder="programs.skypilot",
            modules=("rules",),
            when=lambda submission: submission.has("SkyPilot task"),
        ),
    ),
    launcher="programs.skypilot.write:LAUNCHER",
    job_rules=("programs.skypilot.accelerators",),
)
