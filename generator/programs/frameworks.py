"""The frameworks: from a plan to the program that every process runs, its arguments and its
configuration files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..job.records import Frameworks
from .records import PROGRAMS

if TYPE_CHECKING:
    from ..search.plan import Plan
    from .program import Program

FRAMEWORKS: Final[Frameworks] = PROGRAMS.frameworks


def program_for(plan: Plan) -> Program:
    """Return the program that every process of the job runs.

    A pure function: the same plan gives the same bytes.
    """
    program: Program = plan.job.framework.program(plan)
    return program
