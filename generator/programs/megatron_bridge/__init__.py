"""Megatron-Bridge, as one record."""

from __future__ import annotations

from typing import Final

from ...submission.record import ProgramRecord

MEGATRON_BRIDGE: Final = ProgramRecord(
    name="megatron_bridge",
    job_rules=("programs.megatron_bridge.job_rules",),
    frameworks={"megatron-bridge": "programs.megatron_bridge.write:FRAMEWORK"},
)
