"""Rendered files on disk: compared first, then written all or not at all. Nothing here prints."""

from .compare import Action, CannotWrite, Change, ChangedMeanwhile, WouldOverwrite, compare, diff
from .write import leftovers, recover, replace, write

__all__ = [
    "Action",
    "CannotWrite",
    "Change",
    "ChangedMeanwhile",
    "WouldOverwrite",
    "compare",
    "diff",
    "leftovers",
    "recover",
    "replace",
    "write",
]
