"""Requirements on the files of a submission: configs, launch scripts, jobs for a cluster's service."""

from __future__ import annotations

from .check import check_submission
from .registry import DOCUMENT_RULES
from .rule import Breach, DocumentRule

__all__ = ["DOCUMENT_RULES", "Breach", "DocumentRule", "check_submission"]
