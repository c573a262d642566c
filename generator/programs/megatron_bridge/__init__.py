"""Megatron-Bridge, as one record."""

from __future__ import annotations

from typing import Any, Final

from ...submission.record import Beside, DocumentKind, ProgramRecord, Rules, loaded


def _has_overrides(submission: Any) -> bool:
    """Whether a file of overrides is there, or a line that starts Megatron-Bridge."""
    if submission.has("Megatron-Bridge overrides"):
        return True
    named = any("run_recipe" in str(launch.program) for launch in submission.launches)
    return named and any(
        map(loaded("programs.megatron_bridge.overrides:is_started"), submission.launches)
    )


MEGATRON_BRIDGE: Final = ProgramRecord(
    name="megatron_bridge",
    kinds=(
        DocumentKind(
            name="Megatron-Bridge overrides",
            reader="programs.megatron_bridge.overrides:read_file",
            beside=Beside(order=4),
        ),
    ),
    rules=(Rules(folder="programs.megatron_bridge", modules=("rules",), when=_has_overrides),),
    job_rules=("programs.megatron_bridge.job_rules",),
    frameworks={"megatron-bridge": "programs.megatron_bridge.write:FRAMEWORK"},
)
