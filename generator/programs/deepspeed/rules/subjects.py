"""What rules on DeepSpeed configs look at one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...rule import subject
from ...submission import Submission
from ..config import Config


class Run(NamedTuple):
    """One config, and the submission that it belongs to."""

    config: Config
    submission: Submission


@subject("DeepSpeed config")
def configs(submission: Submission) -> Iterator[Config]:
    """The configs that could be read to their end, so that what they leave out is known too; no empty file."""
    return (config for config in submission.configs if config.is_readable)


@subject("DeepSpeed config")
def building(submission: Submission) -> Iterator[Config]:
    """Those whose optimizer and schedule DeepSpeed builds: Megatron-DeepSpeed passes its own in their place."""
    return (config for config in configs(submission) if config.consumer != "megatron-deepspeed")


@subject("DeepSpeed config")
def runs(submission: Submission) -> Iterator[Run]:
    """The same configs, for rules that hold them against the rest of the submission."""
    return (Run(config, submission) for config in configs(submission))
