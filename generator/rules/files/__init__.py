"""Requirements on the files of a submission: configs, launch scripts, jobs for a cluster's service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .check import check_submission
from .rule import Breach, DocumentRule

if TYPE_CHECKING:
    from .registry import DOCUMENT_RULES

__all__ = ["DOCUMENT_RULES", "Breach", "DocumentRule", "check_submission"]


def __getattr__(name: str) -> Any:
    if name != "DOCUMENT_RULES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import registry

    return registry.DOCUMENT_RULES
