"""What programs, scripts and configs are for, by their names: training, or something else."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

#: Names of what prepares data, converts, measures or uses a model; and of what trains one. Retrieval is no evaluation.
_OTHER: Final = re.compile(
    r"infer|generat|convert|preprocess|prepare|tokeni[sz]e|download|(?<!ri)eval|serv(?:e|ing)|export|_perf\b|"
    r"nccl[-_]test|chatbot",
    re.IGNORECASE,
)
_TRAINING: Final = re.compile(r"train|tun(?:e|ing)|sft|dpo|grpo|ppo|distill", re.IGNORECASE)
_PREPARES: Final = re.compile(r"setup|install|health|clean|^apt(?:-get)?$", re.IGNORECASE)


def trains_nothing(name: str) -> bool:
    """Whether a file is named after something else than training."""
    return _OTHER.search(name) is not None and _TRAINING.search(name) is None


def is_template(path: str) -> bool:
    """Whether a file, or the folder that it is in, is named as something to be completed."""
    return any("template" in part.lower() for part in PurePosixPath(path).parts[-2:])


def prepares(name: str) -> bool:
    """Whether a program is named after the preparation of a machine."""
    return _PREPARES.search(name) is not None and _TRAINING.search(name) is None
