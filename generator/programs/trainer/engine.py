"""The Trainer of Transformers on DeepSpeed's engine: what its models leave, and what it saves
beside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..deepspeed.engine import ENGINE as DEEPSPEED

#: Source: transformers 5.23; what isn't said here is DeepSpeed's.
ENGINE: Final = replace(
    DEEPSPEED,
    pipeline="none",  # integrations/deepspeed.py: no PipelineModule
    experts="whole",  # models/mixtral/modeling_mixtral.py: tensors of all experts
    scripted=False,
    sizes_vary=True,  # data/data_collator.py, DataCollatorWithPadding: to the longest of a batch
    saves_model=True,  # trainer.py, _save_checkpoint: save_model beside DeepSpeed's own
)
