"""The rules on files: those of the programs, and those on files of several."""

from __future__ import annotations

from functools import lru_cache

from ...programs.deepspeed.facts import says_layout
from ...programs.file_rules import all_rules_of_programs, rules_of_programs
from ...programs.submission import Submission
from ...rule import Rule, rules_in

# Imports within functions save start-up time.


@lru_cache(maxsize=1)
def _rules_on_all() -> tuple[Rule, ...]:
    """Rules that hold documents of several programs against one another."""
    from ...programs import secret_rules
    from . import against_job, consistency, memory_places, sizes

    return rules_in(memory_places, consistency, sizes, secret_rules, against_job)


@lru_cache(maxsize=1)
def _rules_on_estimates() -> tuple[Rule, ...]:
    """Rules on layouts, memory and time, which need numpy."""
    from . import fits, planning, run_length

    return (*planning.RULES, *rules_in(fits, run_length))


def rules_for(submission: Submission) -> tuple[Rule, ...]:
    """The rules that have something to look at in a submission, for its release of DeepSpeed."""
    found = [*rules_of_programs(submission), *_rules_on_all()]
    # Without a run of Megatron's, machines, or sizes of parallelism, they have nothing to say.
    if submission.megatron or (submission.cluster and submission.configs) or says_layout(submission):
        found += _rules_on_estimates()
    return tuple(rule for rule in found if rule.holds_for(submission.deepspeed_version))


@lru_cache(maxsize=1)
def all_file_rules() -> tuple[Rule, ...]:
    """Every rule on files."""
    return (*all_rules_of_programs(), *_rules_on_all(), *_rules_on_estimates())
