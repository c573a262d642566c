"""Every rule on documents, in two tuples: those of files, and with them those of jobs and layouts, which need numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import across, against_job
from .azureml import registry as azureml
from .deepspeed import registry as deepspeed
from .huggingface import registry as huggingface
from .launching import registry as launching
from .megatron import registry as megatron
from .rule import DocumentRule
from .slurm import registry as slurm

#: Every rule but those on jobs, layouts and memory, which `as_job` and `fits` apply to launch scripts and configs.
FILE_RULES: Final[tuple[DocumentRule, ...]] = (
    *deepspeed.RULES,
    *launching.RULES,
    *slurm.RULES,
    *azureml.RULES,
    *huggingface.RULES,
    *megatron.RULES,
    *across.RULES,
    *against_job.RULES,
)

if TYPE_CHECKING:
    DOCUMENT_RULES: tuple[DocumentRule, ...]


def __getattr__(name: str) -> Any:
    """`DOCUMENT_RULES`, every rule, when it is asked for: the rules on layouts need numpy."""
    if name != "DOCUMENT_RULES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .megatron import as_job, fits

    globals()[name] = (*FILE_RULES, *as_job.RULES, *fits.RULES)
    return globals()[name]
