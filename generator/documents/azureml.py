"""AzureML command jobs."""

from __future__ import annotations

from ..spec.source import Source
from ..spec.text import Text
from .document import AzureMLJob


def read_azureml(source: Source, text: Text) -> AzureMLJob:
    """The job of a YAML document, its command read as a shell script."""
    return AzureMLJob(source=source, script=None)
