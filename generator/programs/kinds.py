"""The kinds of files, and what reads each: a function from a file to its documents, and findings on its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from ..facts.document import Document, FileText, Kind
from ..findings import Finding

#: The module and the function. Job specs, which `dsgen.job` reads, and scripts, which have several documents, are not
#: among them.
_READERS: Final[Mapping[Kind, tuple[str, str]]] = {
    "DeepSpeed config": ("deepspeed.read", "read_file"),
    "AzureML job": ("azureml.read", "read_file"),
    "Kubernetes job": ("kubernetes.read", "read_file"),
    "SkyPilot task": ("skypilot.read", "read_file"),
    "accelerate config": ("trainer.accelerate", "read_file"),
    "training arguments": ("trainer.training_arguments", "read_file"),
    "Megatron arguments": ("megatron.arguments", "read_file"),
    "hostfile": ("launching.hostfile", "read_hosts"),
    "environment file": ("launching.hostfile", "read_environment"),
}


def read_as(kind: Kind, file: FileText) -> Iterator[Document | Finding]:
    """The documents of a file of a kind, and findings on its text."""
    module, function = _READERS[kind]
    documents: Iterator[Document | Finding] = getattr(import_module(f".{module}", __package__), function)(file)
    return documents
