"""Jobs whose data AzureML mounts, one that passes each rule and one that breaks it."""

from __future__ import annotations

from typing import Any, Final

from dsgen.job.records import Data, Job, Output
from tests.rules.jobs import job

_STORE: Final = "azureml://datastores/training/paths"
_CACHE: Final = ("--data-cache-path", "/cache")


def mounted(
    data: str | None = None,
    checkpoints: str | None = None,
    arguments: tuple[str, ...] = _CACHE,
    framework: str = "megatron-lm",
    **options: Any,
) -> Job:
    """A job on AzureML."""
    return job(
        framework,
        data=Data(path=(data,) if data else ()),
        output=Output(checkpoints=checkpoints),
        launch={"target": "azureml", "options": options, "arguments": arguments},
    )


#: As in test_job_rules: rule id, a job that passes, one that breaks it, where, what is said, and
#: the hint.
MOUNTS: Final[dict[str, tuple[Job, Job, str, tuple[str, ...], str]]] = {
    "AML045": (
        mounted("${{inputs.corpus}}/text", inputs={"corpus": "azureml:corpus:1"}),
        mounted("${{inputs.corpora}}/text", inputs={"corpus": "azureml:corpus:1"}),
        "/data/path",
        ("${{inputs.corpora}}", "corpus"),
        "launch.azureml.inputs",
    ),
    "AML046": (
        mounted("azureml:corpus:1/text"),
        job(data=Data(path=("azureml:corpus:1/text",))),
        "/data/path",
        ("azureml:corpus:1/text", "slurm"),
        "target: azureml",
    ),
    "AML047": (
        mounted("azureml:corpus:1/text"),
        mounted("azureml:corpus:1"),
        "/data/path",
        ("azureml:corpus:1", "megatron-lm"),
        "azureml:corpus:1/NAME",
    ),
    "AML048": (
        mounted(f"{_STORE}/corpus/text"),
        mounted(f"{_STORE}/corpus/text", arguments=(), outputs={"cache": {}}),
        "/data/path",
        ("read-only", "--data-cache-path"),
        "--data-cache-path ${{outputs.cache}}/data-cache",
    ),
    "AML049": (
        mounted(checkpoints=f"{_STORE}/run"),
        mounted(checkpoints="/tmp/run"),
        "/output/checkpoints",
        ("/tmp/run",),
        "azureml://datastores/",
    ),
    "AML050": (
        mounted(checkpoints="${{outputs.run}}", outputs={"run": {"mode": "rw_mount"}}),
        mounted(checkpoints="${{outputs.run}}", outputs={"run": {"mode": "upload"}}),
        "/output/checkpoints",
        ("mode upload",),
        "rw_mount",
    ),
    "AML051": (
        mounted(checkpoints=f"{_STORE}/run"),
        mounted(checkpoints="azureml:checkpoints:1"),
        "/output/checkpoints",
        ("azureml:checkpoints:1", "not written"),
        "azureml://datastores/",
    ),
}
