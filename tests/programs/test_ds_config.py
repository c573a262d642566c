"""The DeepSpeed JSON: what DeepSpeed's own parser makes of it at 1,024 GPUs, and which keys it
holds.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from dsgen.estimate.buffers import bucket_elements, max_live_elements, prefetch_elements
from dsgen.estimate.layout import Layout, Layouts, Offload, Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.uncertainty import host_band
from dsgen.job.records import Job
from dsgen.programs.frameworks import program_for
from tests.deepspeed_parser import batch_triple, parse
from tests.programs.plans import GPT, LLAMA, MODELS, TINY, make_job, make_plan

WORLD = 1024
STAGES = (0, 1, 2, 3)
PRECISIONS = ("fp32", "fp16", "bf16", "fp8")


def offloads(stage: int) -> tuple[Offload, ...]:
    """The offloads DeepSpeed offers at `stage`: the optimizer needs ZeRO, the parameters stage
    3.
    """
    return tuple(Offload)[: (1, 2, 2, 3)[stage]]


def rendered_config(job: Job, layout: Layout) -> dict[str, Any]:
    """The ds_config.json of a plan, read back from its text."""
    (file,) = program_for(make_plan(job, layout)).files
    assert file.path == "ds_config.json"
    config: dict[str, Any] = json.loads(file.text)
    return config


def layout_of(
    stage: int, offload: Offload, *, tensor: int = 1, context: int = 1, pipeline: int = 1
) -> Layout:
    """A layout of the whole world."""
    return Layout(
        data=WORLD // tensor // context // pipeline,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        zero_stage=stage,
        micro_batch=2,
        gradient_accumulation=3,
        offload=offload,
    )


CASES = [
    (framework, stage, precision, offload)
    for framework, stage, precision in itertools.product(
        ("deepspeed", "huggingface", "megatron-deepspeed"), STAGES, PRECISIONS
    )
    for offload in offloads(stage)
]


@pytest.mark.integration
@pytest.mark.parametrize(("tensor", "context"), [(1, 1), (8, 1), (1, 4)])
def test_deepspeed_accepts_every_config_with_the_batch_it_was_given(
    tensor: int, context: int
) -> None:
    """For every framework, stage, precision and offload, DeepSpeed's parser reads the batch triple
    that is meant.
    """
    for framework, stage, precision, offload in CASES:
        layout = layout_of(stage, offload, tensor=tensor, context=context)
        config = rendered_config(make_job(framework, LLAMA, precision=precision), layout)
        megatron = framework == "megatron-deepspeed"
        parsed = parse(config, WORLD, dp=layout.data if megatron else None)
        # Without an mpu, the ranks of an AutoTP group count one by one.
        ranks = layout.data if megatron else layout.data * tensor
        assert batch_triple(parsed) == (6 * ranks, 2, 3), (framework, stage, precision, offload)
        assert parsed.zero_config.stage == stage
        assert parsed.bfloat16_config.enabled == (precision in ("bf16", "fp8"))
        assert parsed.float16_config.enabled == (precision == "fp16")
        assert parsed.gradient_clipping == 1.0


@pytest.mark.integration
def test_ulysses_mpu_of_transformers_gives_the_replicas() -> None:
    """With the mpu that accelerate passes for Ulysses, DeepSpeed derives the plan's global
    batch.
    """
    layout = layout_of(3, Offload.NONE, context=4)
    parsed = parse(rendered_config(make_job("huggingface", LLAMA), layout), WORLD, sp=4)
    assert batch_triple(parsed) == (layout.global_batch, 2, 3)


@pytest.mark.integration
def test_deepspeed_refuses_another_world() -> None:
    """The parser really checks: the same config is refused on half the GPUs."""
    config = rendered_config(make_job("deepspeed", LLAMA), layout_of(1, Offload.NONE))
    with pytest.raises(AssertionError, match=r"6144 != 2 \* 3 \* 512"):
        parse(config, WORLD // 2)


@pytest.mark.integration
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "lamb", "sgd"])
def test_deepspeed_knows_the_optimizer(optimizer: str) -> None:
    """Every optimizer of the job spec is one DeepSpeed's engine makes, and Adam is not silently
    AdamW.
    """
    import torch
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS

    config = rendered_config(make_job("deepspeed", optimizer=optimizer), layout_of(1, Offload.NONE))
    parsed = parse(config, WORLD)
    assert parsed.optimizer_name in DEEPSPEED_OPTIMIZERS or hasattr(
        torch.optim, parsed.optimizer_name
    )
    assert parsed.optimizer_params.get("adam_w_mode", True) == (optimizer != "adam")
    assert bool(parsed.zero_allow_untested_optimizer) == (optimizer in ("lamb", "sgd"))


def test_only_keys_that_act_at_the_stage() -> None:
    """Stage 0 has no ZeRO keys, stage 3 keys are only at stage 3, and fp16 keys only under fp16."""
    configs = [
        rendered_config(make_job("deepspeed"), layout_of(stage, Offload.NONE)) for stage in STAGES
    ]
    zero = [c["zero_optimization"] for c in configs]
    assert zero[0] == {"stage": 0}
    assert not any(key.startswith("stage3_") for block in zero[:3] for key in block)
    assert "allgather_bucket_size" not in zero[3]
    assert configs[1]["bf16"] == {"enabled": True}
    assert "fp16" not in configs[1]


def test_bf16_accumulates_in_fp32_except_outside_zero() -> None:
    """DeepSpeed refuses mixed gradient types at stage 0, so the type is only set from stage 1
    on.
    """
    types = [
        rendered_config(make_job("deepspeed"), layout_of(stage, Offload.NONE)).get("data_types")
        for stage in STAGES
    ]
    assert types == [None, *[{"grad_accum_dtype": "fp32"}] * 3]


def test_only_the_trainer_gathers_weights_to_save_them() -> None:
    """Gathering 16-bit weights on save is the Trainer's need; a large model's would not fit one
    host.
    """
    key = "stage3_gather_16bit_weights_on_model_save"
    blocks = {
        f: rendered_config(make_job(f), layout_of(3, Offload.NONE))["zero_optimization"]
        for f in ("deepspeed", "huggingface", "megatron-deepspeed")
    }
    assert {f: key in block for f, block in blocks.items()} == {
        "deepspeed": False, "huggingface": True, "megatron-deepspeed": False,
    }  # fmt: skip


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface"])
def test_train_batch_is_left_out_only_where_two_checks_want_two_numbers(framework: str) -> None:
    """AutoTP under stage 3, and Ulysses under the Trainer, leave train_batch_size to DeepSpeed;
    nothing else does.
    """
    shapes = itertools.product(STAGES, ((1, 1), (8, 1), (1, 4)))
    left_out = {
        (stage, tensor, context)
        for stage, (tensor, context) in shapes
        if "train_batch_size"
        not in rendered_config(
            make_job(framework), layout_of(stage, Offload.NONE, tensor=tensor, context=context)
        )
    }
    ulysses = {(stage, 1, 4) for stage in STAGES} if framework == "huggingface" else set()
    assert left_out == {(3, 8, 1)} | ulysses


def test_pipelines_do_not_overlap_communication() -> None:
    """A pipeline engine would switch overlap_comm off with a warning, so it is off in the file."""
    layout = layout_of(1, Offload.NONE, pipeline=4)
    config = rendered_config(make_job("megatron-deepspeed"), layout)
    assert config["zero_optimization"]["overlap_comm"] is False
    assert config["train_batch_size"] == layout.global_batch


def test_megatron_builds_its_own_optimizer() -> None:
    """Megatron-DeepSpeed hands DeepSpeed an optimizer, so its JSON has none, even with offload."""
    config = rendered_config(make_job("megatron-deepspeed"), layout_of(2, Offload.OPTIMIZER))
    assert "optimizer" not in config
    assert config["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}


def test_offload_is_pinned_where_the_host_has_room() -> None:
    """States that fit in the host's memory once, but not in pinned buffers, aren't pinned."""
    job, layout = make_job("deepspeed"), layout_of(2, Offload.OPTIMIZER)
    ends = host_band(job, memory(job, layout))
    for needed, pinned in ((float(ends.high), True), ((ends.low + ends.high) / 2, False)):
        cluster = replace(job.cluster, host_memory_bytes=needed / (1 - job.headroom) + 1)
        config = rendered_config(replace(job, cluster=cluster), layout)
        assert config["zero_optimization"]["offload_optimizer"]["pin_memory"] is pinned


def test_recomputation_is_in_the_json_only_where_it_is_read() -> None:
    """The activation_checkpointing block is written for the framework whose script may read it."""
    layout = Layout(data=8, recompute=Recompute.FULL)
    having = {
        f: "activation_checkpointing" in rendered_config(make_job(f), layout)
        for f in ("deepspeed", "huggingface", "megatron-deepspeed")
    }
    assert having == {"deepspeed": True, "huggingface": False, "megatron-deepspeed": False}


def test_the_text_is_strict_deterministic_json() -> None:
    """The file is indented JSON that ends in a newline, the same bytes each time."""
    plan = make_plan(make_job("deepspeed"), layout_of(3, Offload.OPTIMIZER_AND_PARAMETERS))
    first, second = (program_for(plan).files[0].text for _ in range(2))
    assert first == second == json.dumps(json.loads(first), indent=2) + "\n"


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_buckets_are_even_positive_and_no_larger_than_what_fills_them(model: Any) -> None:
    """Bucket sizes are even whole numbers between 2 and 2e8 elements, whatever the model and its
    shards.
    """
    job = make_job("deepspeed", model)
    for tensor, pipeline in itertools.product((1, 8), (1, 16)):
        layout = Layout(data=1, tensor=tensor, pipeline=pipeline)
        for size in (bucket_elements(job, layout), prefetch_elements(job, layout)):
            assert 2 <= size <= 200_000_000
            assert size % 2 == 0
        assert max_live_elements(job, layout) <= 1_000_000_000


def test_buckets_of_columns_equal_those_of_rows() -> None:
    """A column of layouts gives the same bucket sizes as its layouts one by one."""
    import numpy as np

    rows = [Layout(data=1, tensor=t) for t in (1, 2, 4)]
    columns = Layouts(
        **{name: np.array([getattr(r, name) for r in rows]) for name in Layout.__dataclass_fields__}
    )
    for job in (make_job("deepspeed", GPT), make_job("deepspeed", TINY)):
        assert list(np.broadcast_to(bucket_elements(job, columns), 3)) == [
            bucket_elements(job, r) for r in rows
        ]


def test_part_of_the_ranks_is_in_the_json_of_stage_3() -> None:
    """MiCS has the ranks of a shard, hpZ those of a second partition, and quantized communication
    its two switches.
    """
    quantized = make_job(
        "deepspeed", LLAMA, quantized_weights=True, quantized_gradients=True, precision="fp16"
    )
    shared = rendered_config(quantized, Layout(data=64, zero_stage=3, zero_hpz=8))[
        "zero_optimization"
    ]
    assert (shared["zero_hpz_partition_size"], shared["zero_quantized_weights"]) == (8, True)
    assert shared["zero_quantized_gradients"] and "mics_shard_size" not in shared
    mics = rendered_config(
        make_job("deepspeed", LLAMA), Layout(data=64, zero_stage=3, zero_copies=4)
    )
    assert mics["zero_optimization"]["mics_shard_size"] == 16
    plain = rendered_config(make_job("deepspeed", LLAMA), Layout(data=64, zero_stage=3))[
        "zero_optimization"
    ]
    assert not {key for key in plain if key.startswith(("zero_", "mics_"))}
