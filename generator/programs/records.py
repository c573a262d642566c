"""The programs that dsgen knows, each with its record; the rest of dsgen learns of them here."""

from __future__ import annotations

from typing import Final

from ..submission.record import Beside, DocumentKind, ProgramRecord, Programs, Signs
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

#: dsgen itself, whose job specs lie beside the files of programs.
_OWN: Final = ProgramRecord(
    name="dsgen",
    kinds=(
        DocumentKind(
            name="job spec",
            beside=Beside(order=3),
            signs=Signs(
                plain=frozenset(),
                own=frozenset({"calibration", "cluster", "framework", "gpus", "layout"}),
                shared=frozenset({"launch", "memory", "model", "name", "nodes", "training"}),
                least=2,
                share=0.6,
            ),
        ),
    ),
)

#: In the order in which they are asked of a log, of a config and of what reads it:
#: Megatron-DeepSpeed is Megatron.
PROGRAMS: Final = Programs(
    records=(
        _OWN,
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
