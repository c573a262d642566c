"""The configs that a submission uses, by what its launch lines and files name."""

from __future__ import annotations

from functools import lru_cache

from ..facts.document import Kind
from .deepspeed.config import Config
from .deepspeed.document import DsConfig
from .references import Reference as Reference
from .submission import Submission
from .trainer.accelerate import AccelerateConfig
from .trainer.training_arguments import TrainingArguments


def references(submission: Submission) -> tuple[Reference, ...]:
    """Every file that a launch line or config names, where its name can be known."""
    return submission.references


@lru_cache(maxsize=4)
def named_in(submission: Submission, path: str) -> frozenset[int] | None:
    """The DeepSpeed configs that the document at `path` names, by identity of their text; None where it names none."""
    links = [link for link in submission.references if link.where.path == path and link.kind == "DeepSpeed config"]
    return frozenset(id(getattr(one, "json", None)) for link in links for one in link.documents) if links else None


@lru_cache(maxsize=4)
def used_config(submission: Submission) -> Config | None:
    """The DeepSpeed config that the job uses: the one that a launch line names, else the only one there is."""
    named = _named(submission, "DeepSpeed config")
    used = [config for config in submission.configs if id(config.json) in named] or submission.configs
    return used[0] if len(used) == 1 else None


def used_accelerate_config(submission: Submission) -> AccelerateConfig | None:
    """The accelerate config that the job uses: the one that a launch line names, else the only one there is."""
    named = _named(submission, "accelerate config")
    configs = submission.accelerate_configs
    used = [config for config in configs if id(config) in named] or configs
    return used[0] if len(used) == 1 else None


def ds_config_of(submission: Submission, arguments: TrainingArguments) -> Config | None:
    """The DeepSpeed config that arguments name by their `deepspeed`; the job's, where the name can't be known.

    None where the arguments don't use DeepSpeed, or it can't be known which config they mean.
    """
    named = arguments.value("deepspeed")
    if not arguments.has("deepspeed") or isinstance(named, dict) or named in (False, ""):
        return None
    if named is None:
        return used_config(submission)
    links = [link for link in submission.references if (link.path, link.where.path) == (named, arguments.path)]
    found = {id(one.json) for link in links for one in link.documents if isinstance(one, DsConfig)}
    return next((config for config in submission.configs if id(config.json) in found), None)


def _named(submission: Submission, kind: Kind) -> set[int]:
    """The documents of a kind that others name."""
    named = (link for link in submission.references if link.kind == kind)
    return {id(getattr(one, "json", one)) for link in named for one in link.documents}
