"""Since when transformers checks what its rules are about, by the release that the files name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ....findings import WARNING, Version, Violation
from ....text.wording import dots
from ...python_around import release_for
from ...releases import Release
from ..training_arguments import TrainingArguments

#: The first release that refuses save_only_model with load_best_model_at_end, and a search for the
#: batch size. Source: huggingface/transformers pull request 29058, of February 2024.
CHECKS_ENGINE: Final = (4, 38)


def release_of(arguments: TrainingArguments) -> Release:
    """The release of transformers by which arguments are judged."""
    return release_for("transformers", arguments.path, arguments.launches)


def checked_since(
    first: Version, arguments: TrainingArguments, violations: Iterable[Violation]
) -> Iterator[Violation]:
    """Yield the violations that the arguments' release refuses, which transformers does since its
    release `first`: as warnings where prose names an older one, and none where it is surely older.

    `first` is so old that files which name no release aren't judged by an older one.
    """
    for violation in violations:
        release = release_of(arguments)
        if release.version >= first:
            yield violation
        elif not release.is_surely_older(first):
            message = f"{violation.message}; so from transformers {dots(first)} on, and it may be "
            yield replace(violation, message=f"{message}{release}", severity=WARNING)
