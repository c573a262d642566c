"""AzureML, as one record."""

from __future__ import annotations

from typing import Final

from ...submission.record import DocumentKind, ProgramRecord, Rules, Signs

AZUREML: Final = ProgramRecord(
    name="azureml",
    kinds=(
        DocumentKind(
            name="AzureML job",
            reader="programs.azureml.job:read_file",
            references="programs.launching.references:references_of",
            signs=Signs(
                plain=frozenset({"$schema"}),
                rare=frozenset(
                    {
                        "code",
                        "command",
                        "compute",
                        "distribution",
                        "environment",
                        "environment_variables",
                        "experiment_name",
                    }
                ),
                shared=frozenset(
                    {
                        "description",
                        "display_name",
                        "identity",
                        "inputs",
                        "limits",
                        "name",
                        "outputs",
                        "properties",
                        "queue_settings",
                        "resources",
                        "services",
                        "tags",
                        "type",
                    }
                ),
                least=3,
                share=0.65,
                # a command job has a command; pipelines have jobs, and sweeps a trial
                needed=frozenset({"command", "jobs", "trial"}),
            ),
        ),
    ),
    rules=(
        Rules(
            folder="programs.azureml.rules",
            modules=("loading", "service", "command"),
            when=lambda submission: submission.has("AzureML job"),
        ),
    ),
    launcher="programs.azureml.write:LAUNCHER",
)
