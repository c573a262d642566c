"""Every rule on launch lines, hostfiles and environment variables."""

from __future__ import annotations

from typing import Final

from ..rule import DocumentRule
from . import (
    environment,
    hostfiles,
    launch_lines,
    launch_ports,
    launch_ranks,
    launch_stacked,
    launch_torchrun,
    launchers,
    local_only,
    local_rank,
    nccl,
)

RULES: Final[tuple[DocumentRule, ...]] = (
    *local_only.RULES,
    *launchers.RULES,
    *local_rank.RULES,
    *launch_torchrun.RULES,
    *launch_ranks.RULES,
    *launch_lines.RULES,
    *launch_ports.RULES,
    *launch_stacked.RULES,
    *hostfiles.RULES,
    *environment.RULES,
    *nccl.RULES,
)
