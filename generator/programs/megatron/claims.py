"""What Megatron's arguments say of a submission: the degrees of parallelism, and who reads
DeepSpeed's configs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...submission.submission import Submission
from ...submission.world import OF_ARGUMENTS, Degree
from .arguments import MegatronArguments

_WITH_DEEPSPEED: Final = "megatron-deepspeed"
_DEGREES: Final = (
    ("tensor", "--tensor-model-parallel-size"),
    ("pipeline", "--pipeline-model-parallel-size"),
    ("context", "--context-parallel-size"),
    ("context", "--ds-sequence-parallel-size"),
    ("expert", "--expert-model-parallel-size"),
)


def degrees_of(submission: Submission) -> Iterator[Degree]:
    """The degrees of each program's arguments; None of an option that isn't given."""
    for arguments in submission.of(MegatronArguments):
        for name, option in _DEGREES:
            yield Degree(OF_ARGUMENTS, name, arguments.integer(option))


def consumer_of(submission: Submission) -> str | None:
    """Return Megatron-DeepSpeed, which reads DeepSpeed's configs, where the job or its arguments
    are for it.
    """
    if submission.job is not None and submission.job.framework.name == _WITH_DEEPSPEED:
        return _WITH_DEEPSPEED
    flavours = {arguments.flavour for arguments in submission.of(MegatronArguments)}
    return _WITH_DEEPSPEED if _WITH_DEEPSPEED in flavours else None
