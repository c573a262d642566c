"""ZeRO stages, and settings that a stage doesn't use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed, deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import (
    accumulates_in,
    building,
    configs,
    ds_rule,
    given,
    idle,
    offloads,
    optimizer_type,
    precision,
    shown,
    stage_of,
    switch,
    whole,
)

ZERO: Final = "/zero_optimization"


#: Keys of stages 1 and 2 that the engine does not hand to the optimizer of stage 3.
BELOW_STAGE_3: Final = ("allgather_bucket_size", "use_multi_rank_bucket_allreduce", "round_robin_gradients")
BELOW_STAGE_3_TOO: Final = ("ignore_unused_parameters", "parameter_alignment")

#: Keys that DeepSpeed's parser takes and nothing reads.
UNREAD: Final = ("allgather_partitions", "memory_efficient_linear", "pipeline_loading_checkpoint")


def zero_says_its_stage(submission: Submission) -> Iterator[Breach]:
    """zero_optimization says which stage it is: without one it is stage 0, and all else in it has no effect."""
    for config in configs(submission):
        block = config.block(ZERO)
        if block and "stage" not in block:
            message = f"zero_optimization has no stage, so it is 0: {_listed(block)} {_has(block)} no effect"
            yield Breach(where=config.locate_key(ZERO), message=message, hint='"stage": 1, 2 or 3')


def _listed(keys: Iterable[str]) -> str:
    names = list(keys)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _has(keys: Iterable[str]) -> str:
    return "has" if len(list(keys)) == 1 else "have"


def stage_0_has_no_settings(submission: Submission) -> Iterator[Breach]:
    """ZeRO stage 0 is no ZeRO, so nothing else is set for it."""
    for config in configs(submission):
        block = config.block(ZERO)
        others = [key for key in block if key != "stage" and not key.startswith(("offload_", "cpu_offload"))]
        if block.get("stage") == 0 and not isinstance(block.get("stage"), bool) and others:
            message = f"stage: 0 switches ZeRO off: {_listed(others)} {_has(others)} no effect"
            yield Breach(
                where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 1, 2 or 3, or remove the others"
            )


def stage_3_keys_are_at_stage_3(submission: Submission) -> Iterator[Breach]:
    """Keys of stage 3 are not written at a lower stage."""
    for config in configs(submission):
        stage = stage_of(config)
        if stage not in (1, 2):
            continue
        here = [key for key in config.block(ZERO) if key.startswith("stage3_") or key == "sub_group_size"]
        yield from idle(config, (f"{ZERO}/{key}" for key in here), f"at stage {stage}")


def lower_keys_are_not_at_stage_3(submission: Submission) -> Iterator[Breach]:
    """Keys of stages 1 and 2 are not written at stage 3."""
    for config in configs(submission):
        if stage_of(config) == 3 and not switch(config, "/compile/deepcompile"):
            keys = (f"{ZERO}/{key}" for key in (*BELOW_STAGE_3, *BELOW_STAGE_3_TOO))
            yield from idle(config, keys, "at stage 3")


def keys_are_read(submission: Submission) -> Iterator[Breach]:
    """Keys that DeepSpeed takes but nothing reads any more aren't relied on."""
    for config in configs(submission):
        defaults = {"allgather_partitions": True, "memory_efficient_linear": True}
        for key in UNREAD:
            if given(config, f"{ZERO}/{key}") not in (None, defaults.get(key, False)):
                yield from idle(config, (f"{ZERO}/{key}",), "in this version: nothing reads it")
        if switch(config, "/disable_allgather"):
            yield from idle(config, ("/disable_allgather",), "in this version: nothing reads it")


def autotp_stops_at_stage_2(submission: Submission) -> Iterator[Breach]:
    """This version of DeepSpeed runs AutoTP with ZeRO up to stage 2."""
    for config in configs(submission):
        size = whole(given(config, "/tensor_parallel/autotp_size"))
        if size and size > 1 and stage_of(config) == 3:
            message = f"autotp_size: {size} with ZeRO stage 3 is refused: this DeepSpeed takes at most 2"
            yield Breach(
                where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 2, or DeepSpeed 0.19.4 or later"
            )


def optimizers_are_tested_with_zero(submission: Submission) -> Iterator[Breach]:
    """With ZeRO, DeepSpeed builds optimizers that it was tested with, or is told to allow others."""
    for config in building(submission):
        name, stage = optimizer_type(config), stage_of(config)
        if (
            name is None
            or not stage
            or name in _TESTED
            or switch(config, "/zero_allow_untested_optimizer") is not False
        ):
            continue
        written = shown(config.value("/optimizer/type"))
        message = f"optimizer {written} with ZeRO stage {stage} is untested, so DeepSpeed refuses it"
        hint = 'AdamW, or "zero_allow_untested_optimizer": true'
        yield Breach(where=config.locate("/optimizer/type"), message=message, hint=hint)


#: What the engine builds for these is in `ZERO_SUPPORTED_OPTIMIZERS`; `Muon` since it is a type of its own. mup's
#: MuAdam and MuAdamW are Adams of torch; 1-bit optimizers have a rule of their own.
_TESTED: Final = frozenset({"adam", "adamw", "adagrad", "lion", "muon", "muadam", "muadamw"}) | frozenset(
    {"onebitadam", "zerooneadam", "onebitlamb"}
)


def lamb_needs_whole_tensors(submission: Submission) -> Iterator[Breach]:
    """LAMB's trust ratio is a layer's norm, which ZeRO's flat partitions don't have."""
    for config in building(submission):
        stage = stage_of(config)
        if optimizer_type(config) == "lamb" and stage:
            what = "computes its trust ratio over flat partitions, not layers"
            message = f"optimizer {shown(config.value('/optimizer/type'))} with ZeRO stage {stage} {what}"
            yield Breach(where=config.locate("/optimizer/type"), message=message, hint="stage 0, or AdamW")


def bf16_optimizer_has_its_own_ways(submission: Submission) -> Iterator[Breach]:
    """bf16 at stage 1 with fp32 accumulation has an optimizer of its own, which reduces gradients in its own way."""
    for config in configs(submission):
        own = precision(config) == "bf16" and stage_of(config) == 1 and not offloads(config, "optimizer")
        if own and accumulates_in(config) in ("fp32", "float32", "float", "torch.float32"):
            asked = [key for key, default in _REDUCTION.items() if given(config, f"{ZERO}/{key}") is (not default)]
            used = (f"{ZERO}/{key}" for key in asked)
            yield from idle(config, used, "with the BF16 optimizer of stage 1 that fp32 accumulation brings")


#: How gradients are reduced, with the defaults of stage 1.
_REDUCTION: Final = {
    "overlap_comm": False,
    "contiguous_gradients": True,
    "reduce_scatter": True,
    "round_robin_gradients": False,
}


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "ZERO045",
        Severity.ERROR,
        "silent",
        zero_says_its_stage,
        source=deepspeed_now("runtime/zero/config.py:94"),
        prevents="the whole block silently does nothing: no sharding, no offload",
        fix="name the stage",
    ),
    ds_rule(
        "ZERO038",
        Severity.WARNING,
        "silent",
        stage_0_has_no_settings,
        source=derived("the engine builds no ZeRO optimizer at stage 0"),
        prevents="settings that look effective and aren't",
        fix="pick a stage or remove them",
    ),
    ds_rule(
        "ZERO011",
        Severity.WARNING,
        "silent",
        stage_3_keys_are_at_stage_3,
        source=deepspeed_now("runtime/engine.py:2669"),
        prevents="settings that look effective and aren't",
        fix="remove them, or stage 3",
    ),
    ds_rule(
        "ZERO046",
        Severity.NOTE,
        "silent",
        lower_keys_are_not_at_stage_3,
        source=deepspeed_now("runtime/engine.py:2744"),
        prevents="settings that look effective and aren't",
        fix="remove them",
    ),
    ds_rule(
        "ZERO047",
        Severity.NOTE,
        "silent",
        keys_are_read,
        source=derived("no other module of DeepSpeed 0.19.8 names these keys"),
        prevents="settings that look effective and aren't",
        fix="remove them",
        since=(0, 19, 8),
    ),
    ds_rule(
        "ZERO041",
        Severity.ERROR,
        "init",
        autotp_stops_at_stage_2,
        source="deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)",
        prevents="an assertion when the engine starts",
        fix="stage 2",
        before=(0, 19, 4),
    ),
    ds_rule(
        "ZERO021",
        Severity.ERROR,
        "init",
        optimizers_are_tested_with_zero,
        source=deepspeed_now("runtime/engine.py:2299; runtime/zero/utils.py:45"),
        prevents="`You are using an untested ZeRO Optimizer`",
        fix="AdamW, or allow it",
    ),
    ds_rule(
        "ZERO042",
        Severity.ERROR,
        "init",
        lamb_needs_whole_tensors,
        source=deepspeed("runtime/zero/utils.py:45"),
        prevents="`You are using an untested ZeRO Optimizer`, or trust ratios of partitions",
        fix="stage 0 or AdamW",
    ),
    ds_rule(
        "ZERO065",
        Severity.NOTE,
        "silent",
        bf16_optimizer_has_its_own_ways,
        source=deepspeed_now("runtime/engine.py:2303; runtime/engine.py:2635"),
        prevents="settings that look effective and aren't",
        fix="remove them, or stage 2",
    ),
)
