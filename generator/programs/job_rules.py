"""The rules that planning asks: the general ones, and programs' own rules on jobs, which know the
options of one program.
"""

from __future__ import annotations

from typing import Final

from ..findings import Finding, in_file_order
from ..job.records import Job
from ..rule import findings_of, rules_in
from ..rules.run import FIT_RULES, IDENTITY_RULES, LAYOUT_RULES, LENGTH_RULES
from ..rules.run import JOB_RULES as _JOB_RULES
from ..submission.record import loaded
from .records import PROGRAMS

_OF_PROGRAMS: Final = (loaded(module) for record in PROGRAMS for module in record.job_rules)
JOB_RULES: Final = (*_JOB_RULES, *rules_in(*_OF_PROGRAMS))
PLANNING_RULES: Final = (*JOB_RULES, *IDENTITY_RULES, *LAYOUT_RULES, *FIT_RULES, *LENGTH_RULES)


def check_job(job: Job) -> tuple[Finding, ...]:
    """Find what breaks the rules on a job alone, before any layout; programs' own among them."""
    return in_file_order(findings_of(JOB_RULES, job))
