"""DeepSpeed's engine: what it keeps, sends and hides."""

from __future__ import annotations

from typing import Final

from ...job.engine import Engine
from ...job.records import Job
from ...text.wording import dots

#: Source: DeepSpeed 0.19.8, where a field doesn't say another; counted with the engine itself
#: (tests/estimate/test_deepspeed_memory.py).
ENGINE: Final = Engine(
    layers="replaced",  # runtime/engine.py, AutoTP
    sharding="partitions",  # runtime/zero
    # runtime/sequence_parallel/ulysses_sp.py refuses batches without position_ids
    context="script",
    pipeline="module",  # runtime/pipe/module.py, PipelineModule
    experts="module",  # moe/layer.py, MoE
    # runtime/zero/mics.py; zero_hpz_partition_size of runtime/zero/config.py
    details=frozenset({"zero_copies", "zero_hpz"}),
    scripted=True,
    copies_fp32=True,  # runtime/zero/stage_1_and_2.py, single_partition_of_fp32_groups
    sums_from=1,  # runtime/engine.py: outside ZeRO gradients are the weights' own
    reduces_sums=False,  # runtime/engine.py, communication_data_type
    flat_gradients=True,  # runtime/bf16_optimizer.py
    frees_gradients=True,  # runtime/engine.py, _take_model_step, which sets gradients to None
    offloads_gradients=True,  # runtime/zero/stage_1_and_2.py, averaged_gradients on the host
    unpins=("pin_memory: false",),  # runtime/zero/offload_config.py
    has_buckets=True,  # runtime/zero/stage_1_and_2.py, setup_buckets
    # runtime/zero/stage_1_and_2.py, step; runtime/fp16/fused_optimizer.py, step
    converts_gradients=True,
    keeps_stage_ends=True,  # runtime/pipe/engine.py, _exec_forward_pass
    # runtime/engine.py:2390 @ 0.19.6; runtime/zero/stage_1_and_2.py, step
    gathers_after_update=True,
    joins_parts=True,  # runtime/zero/partition_parameters.py, AllGatherCoalescedHandle.wait
    cuts_sends=True,  # runtime/pipe/engine.py:137, pipe_partitioned
    balances_stages=True,  # runtime/pipe/module.py, _partition_layers
    saves_partitions=True,  # runtime/engine.py, _save_checkpoint: placeholders at stage 3
    measured_as="DeepSpeed",
    measured_cut="AutoTP",
)
#: Packages that every framework on this engine needs. Source: DeepSpeed's
#: requirements/requirements.txt @ 0.19.8.
VERSIONS: Final = {"torch": ">=2.0.0"}


def release(job: Job) -> dict[str, str]:
    """The release that the files are written for."""
    return {"DeepSpeed": dots(job.deepspeed_version)}
