"""Exit statuses of the program."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """One number per outcome, so that a pipeline can tell them apart."""

    OK = 0
    FINDINGS = 1  #: the job has errors, or its files can't be written
    USAGE = 2  #: the command line is wrong
    INFEASIBLE = 3  #: no layout passes every rule and fits
    WOULD_OVERWRITE = 4  #: files are there with other contents, and --force was not given
