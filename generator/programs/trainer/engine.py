"""The Trainer of Transformers on DeepSpeed's engine, and on FSDP2."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...job.engine import Engine
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
#: Source: torch 2.13, torch/distributed/fsdp/_fully_shard; accelerate 1.15, as the Trainer uses it.
FSDP2: Final = Engine(
    layers="whole",
    sharding="units",  # _fsdp_param.py, _init_sharded_param; _fsdp_param_group.py, reshard
    sharding_name="FSDP2",
    context="gather",  # accelerate, accelerator.py, _prepare_cp: torch's context parallelism
    pipeline="none",
    experts="whole",  # models/mixtral/modeling_mixtral.py: tensors of all experts
    details=frozenset({"sync_each_batch"}),
    shards_masters=True,  # accelerate, utils/fsdp_utils.py, fsdp2_prepare_model
    # accelerate, utils/dataclasses.py, set_mixed_precision: bf16 to compute, to send and to return
    reduces_sums=False,
    defers_reduction=True,  # accelerate, accelerator.py, no_sync
    sizes_vary=True,  # data/data_collator.py, DataCollatorWithPadding: to the longest of a batch
    measured_as="FSDP2",
)
