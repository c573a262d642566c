"""Every rule on launch lines, hostfiles and environment variables."""

from __future__ import annotations

from typing import Final

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

MODULES: Final = (
    local_only,
    launchers,
    local_rank,
    launch_torchrun,
    launch_ranks,
    launch_lines,
    launch_ports,
    launch_stacked,
    hostfiles,
    environment,
    nccl,
)
