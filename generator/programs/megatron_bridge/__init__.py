"""The record of Megatron-Bridge: NVIDIA NeMo's recipes on Megatron-Core, set by overrides."""

from __future__ import annotations

import re
from typing import Any, Final

from ...submission.record import Beside, DocumentKind, ProgramRecord, Role, Rules, loaded


def _has_overrides(submission: Any) -> bool:
    """Whether a file of overrides is there, or a line that starts Megatron-Bridge."""
    if submission.has("Megatron-Bridge overrides", "Megatron-Bridge config"):
        return True
    return any(map(_gives_overrides, submission.launches))


def _gives_overrides(launch: Any) -> bool:
    """Whether a launch line gives its program overrides of Megatron-Bridge's config."""
    # The cheap question first: the other one loads the readers of overrides.
    if not _may_have_overrides(launch):
        return False
    reads_overrides = loaded("programs.megatron_bridge.overrides:reads_overrides")
    return bool(reads_overrides(launch))


def _may_have_overrides(launch: Any) -> bool:
    """Whether a launch line's program or one of its words looks like Megatron-Bridge's."""
    if re.search("run_recipe|run_script|setup_experiment", str(launch.program)):
        return True
    return any(word.raw.lstrip("\"'").startswith("train.") for word in launch.arguments)


MEGATRON_BRIDGE: Final = ProgramRecord(
    name="megatron_bridge",
    kinds=(
        DocumentKind(
            name="Megatron-Bridge overrides",
            reader="programs.megatron_bridge.overrides:read_file",
            beside=Beside(role=Role.ENGINE_CONFIG),
        ),
        DocumentKind(name="Megatron-Bridge config"),
    ),
    rules=(
        Rules(
            folder="programs.megatron_bridge", modules=("rules", "value_rules"), when=_has_overrides
        ),
    ),
    judges=_gives_overrides,
    job_rules=("programs.megatron_bridge.job_rules",),
    frameworks={"megatron-bridge": "programs.megatron_bridge.write:FRAMEWORK"},
)
