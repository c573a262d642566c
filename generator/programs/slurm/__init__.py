"""The record of Slurm: its rules, what its directives claim of a job, and its launcher."""

from __future__ import annotations

from typing import Final

from ...submission.record import ProgramRecord, Rules, Says

SLURM: Final = ProgramRecord(
    name="slurm",
    rules=(
        Rules(
            folder="programs.slurm.rules",
            modules=(
                "options",
                "directives",
                "script",
                "gpus",
                "resources",
                "steps",
                "shared",
                "torchrun",
                "variables",
            ),
            when=lambda submission: submission.shell_texts,
        ),
    ),
    job_rules=("programs.slurm.rules.job",),
    claims=(
        Says(
            function="programs.slurm.claims:claims_of",
            when=lambda submission: any(script.shell.directives for script in submission.scripts),
        ),
    ),
    nodes_of_script="programs.slurm.claims:nodes_of_scripts",
    launcher="programs.slurm.write:LAUNCHER",
)
