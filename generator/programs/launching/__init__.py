"""The record of what starts processes: torchrun, deepspeed, accelerate, srun, mpirun."""

from __future__ import annotations

from typing import Final

from ...submission.record import Beside, DocumentKind, ProgramRecord, Role, Rules, Says

LAUNCHING: Final = ProgramRecord(
    name="launching",
    kinds=(
        DocumentKind(
            name="launch script",
            references="programs.launching.references:references_of",
            templates="programs.launching.references:templates_of",
        ),
        DocumentKind(name="front end config"),
        DocumentKind(
            name="hostfile",
            reader="text.hostfile:read_hosts",
            beside=Beside(role=Role.HOSTS, options=("--hostfile", "--deepspeed_hostfile")),
        ),
        DocumentKind(
            name="environment file",
            reader="text.hostfile:read_environment",
            beside=Beside(role=Role.ENVIRONMENT, launchers=frozenset({"deepspeed", "accelerate"})),
        ),
    ),
    rules=(
        Rules(
            folder="programs.launching.rules",
            modules=("launchers", "lines", "environment", "misspelt", "names"),
            when=lambda submission: (
                submission.shell_texts
                or submission.has("AzureML job", "hostfile", "environment file")
            ),
        ),
        Rules(
            folder="programs.launching.rules",
            modules=("front_ends",),
            when=lambda submission: (
                submission.has("front end config")
                or any(launch.front_end for launch in submission.launches)
            ),
        ),
        Rules(
            folder="programs.launching.rules",
            modules=("hostfiles",),
            when=lambda submission: (
                submission.has("hostfile", "environment file") or submission.calls("deepspeed")
            ),
        ),
    ),
    claims=(
        Says(
            function="programs.launching.claims:claims_of_hosts",
            when=lambda submission: submission.has("hostfile"),
        ),
        Says(
            function="programs.launching.claims:claims_of_lines",
            when=lambda submission: submission.launches,
        ),
    ),
    degrees=(
        Says(
            function="programs.launching.claims:degrees_of",
            when=lambda submission: submission.launches and submission.has("DeepSpeed config"),
        ),
    ),
    divides=Says(
        function="programs.launching.claims:is_divided",
        when=lambda submission: submission.launches,
    ),
    consumer=Says(
        function="programs.launching.references:consumer_of",
        when=lambda submission: submission.launches,
    ),
)
