"""The runs of a submission of which the memory can be estimated, and why that of others can't be.

A run can be estimated where arguments or a config, a model and a cluster are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from ...programs.deepspeed.facts import config_facts
from ...programs.megatron.facts import megatron_facts
from ...submission.subjects import subject
from ...submission.submission import Submission
from .need import Need, Unjudged

# Imports within functions save start-up time.


@subject(
    "DeepSpeed config",
    "launch script",
    "AzureML job",
    "Megatron arguments",
    "Megatron-Bridge overrides",
    "training arguments",
)
def needs(submission: Submission) -> Iterator[Need]:
    """Every run of the submission that can be estimated."""
    return (run for run in _runs(submission) if isinstance(run, Need))


def unjudged(submission: Submission) -> Iterator[Unjudged]:
    """Every run of the submission that can't be estimated, with the reason."""
    return (run for run in _runs(submission) if isinstance(run, Unjudged))


@lru_cache(maxsize=4)
def _runs(submission: Submission) -> tuple[Need | Unjudged, ...]:
    """The runs of the first program that has any.

    Megatron comes first, as its arguments say most; then DeepSpeed, Megatron-Bridge and the
    Trainer's FSDP.
    """
    megatron_runs = megatron_facts(submission)
    if megatron_runs:
        from .needs_of_megatron import of_megatron

        return tuple(chain.from_iterable(of_megatron(run, submission) for run in megatron_runs))
    configs = tuple(config_facts(submission))
    if configs:
        from .needs_of_configs import of_config

        return tuple(chain.from_iterable(of_config(config, submission) for config in configs))
    from .needs_of_bridge import of_bridge
    from .needs_of_fsdp import of_fsdp

    return tuple(of_bridge(submission)) or tuple(of_fsdp(submission))
