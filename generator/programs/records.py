"""The programs that dsgen knows, as one tuple of records.

A program's folder makes its record; modules that work for any program ask these records.
"""

from __future__ import annotations

from typing import Final

from ..submission.record import Beside, DocumentKind, ProgramRecord, Programs, Role, Signs
from .azureml import AZUREML
from .deepspeed import DEEPSPEED
from .kubernetes import KUBERNETES
from .launching import LAUNCHING
from .megatron import MEGATRON
from .megatron_bridge import MEGATRON_BRIDGE
from .shell import SHELL
from .skypilot import SKYPILOT
from .slurm import SLURM
from .trainer import TRAINER

#: dsgen's own record: it has job specs, which are read beside the files of programs.
_DSGEN: Final = ProgramRecord(
    name="dsgen",
    kinds=(
        DocumentKind(
            name="job spec",
            beside=Beside(role=Role.JOB_SPEC),
            signs=Signs(
                plain=frozenset(),
                rare=frozenset({"calibration", "cluster", "framework", "gpus", "layout"}),
                shared=frozenset({"launch", "memory", "model", "name", "nodes", "training"}),
                least=2,
                share=0.6,
            ),
        ),
    ),
)

#: The first that recognizes a log or a config, or knows what reads it, decides. Megatron comes
#: before DeepSpeed, since a run of Megatron-DeepSpeed shows signs of both.
PROGRAMS: Final = Programs(
    records=(
        _DSGEN,
        MEGATRON,
        MEGATRON_BRIDGE,
        DEEPSPEED,
        LAUNCHING,
        SLURM,
        AZUREML,
        KUBERNETES,
        SKYPILOT,
        TRAINER,
        SHELL,
    )
)
