"""The model that a training program loads, where the catalog has it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ....catalog import Model, find_model
from ....job.plain import plain_source
from ....job.resolve_model import resolve_model
from ...submission import Submission
from ..training_arguments import TrainingArguments

#: Suffixes of Hugging Face names: versions, tunings, formats. The architecture is the same.
_ENDING: Final = re.compile(r"-(?:hf|base|instruct|chat|it|v\d{1,2}(?:\.\d{1,2})?)\Z")
_LONGEST: Final = 200  # characters of a name


def model_of(submission: Submission, arguments: TrainingArguments | None = None) -> Model | None:
    """The model of the context or the job, else the one that the arguments name."""
    named = arguments.value("model_name_or_path") if arguments is not None else None
    return submission.model or (model_named(named) if isinstance(named, str) and len(named) < _LONGEST else None)


@lru_cache(maxsize=64)
def model_named(name: str) -> Model | None:
    """The model of a Hugging Face name such as `mistralai/Mixtral-8x7B-v0.1`; None where the catalog has none."""
    short, found = name.rstrip("/").rpartition("/")[2].lower(), None
    while short and found is None:
        found = find_model(short)
        cut = _ENDING.sub("", short)
        short = cut if cut != short else ""
    return resolve_model(plain_source({"model": found.name}), found.name)[0] if found is not None else None
