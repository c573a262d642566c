"""ZeRO stages, and settings that a stage doesn't use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....documents.deepspeed_config import Config
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import building, configs
from .values import shown, unused

ZERO: Final = "/zero_optimization"


#: Keys of stages 1 and 2 that the engine does not hand to the optimizer of stage 3.
BELOW_STAGE_3: Final = ("allgather_bucket_size", "use_multi_rank_bucket_allreduce", "round_robin_gradients")
BELOW_STAGE_3_TOO: Final = ("ignore_unused_parameters", "parameter_alignment")

#: Keys that DeepSpeed's parser takes and nothing reads.
UNREAD: Final = ("allgather_partitions", "memory_efficient_linear", "pipeline_loading_checkpoint")


@configs.rule("ZERO045", ERROR, "silent", deepspeed_now("runtime/zero/config.py:94"))
def zero_says_its_stage(config: Config) -> Violations:
    """zero_optimization says which stage it is: without one it is stage 0, and all else in it has no effect.

    Prevents: the whole block silently does nothing: no sharding, no offload
    Fix: name the stage
    """
    block = config.block(ZERO)
    if block and "stage" not in block:
        message = f"zero_optimization has no stage, so it is 0: {_listed(block)} {_has(block)} no effect"
        yield Violation(where=config.locate_key(ZERO), message=message, hint='"stage": 1, 2 or 3')


def _listed(keys: Iterable[str]) -> str:
    names = list(keys)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _has(keys: Iterable[str]) -> str:
    return "has" if len(list(keys)) == 1 else "have"


@configs.rule("ZERO038", WARNING, "silent", derived("the engine builds no ZeRO optimizer at stage 0"))
def stage_0_has_no_settings(config: Config) -> Violations:
    """ZeRO stage 0 is no ZeRO, so nothing else is set for it.

    Prevents: settings that look effective and aren't
    Fix: pick a stage or remove them
    """
    block = config.block(ZERO)
    others = [key for key in block if key != "stage" and not key.startswith(("offload_", "cpu_offload"))]
    if "stage" in block and block["stage"] != "auto" and config.stage == 0 and others:
        message = f"stage: 0 switches ZeRO off: {_listed(others)} {_has(others)} no effect"
        yield Violation(
            where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 1, 2 or 3, or remove the others"
        )


@configs.rule("ZERO011", WARNING, "silent", deepspeed_now("runtime/engine.py:2669"))
def stage_3_keys_are_at_stage_3(config: Config) -> Violations:
    """Keys of stage 3 are not written at a lower stage.

    Prevents: settings that look effective and aren't
    Fix: remove them, or stage 3
    """
    stage = config.stage
    if stage not in (1, 2):
        return
    here = [key for key in config.block(ZERO) if key.startswith("stage3_") or key == "sub_group_size"]
    yield from unused(config, (f"{ZERO}/{key}" for key in here), f"at stage {stage}")


@configs.rule("ZERO046", NOTE, "silent", deepspeed_now("runtime/engine.py:2744"))
def lower_keys_are_not_at_stage_3(config: Config) -> Violations:
    """Keys of stages 1 and 2 are not written at stage 3.

    Prevents: settings that look effective and aren't
    Fix: remove them
    """
    if config.stage == 3 and not config.switch("/compile/deepcompile"):
        keys = (f"{ZERO}/{key}" for key in (*BELOW_STAGE_3, *BELOW_STAGE_3_TOO))
        yield from unused(config, keys, "at stage 3")


@configs.rule(
    "ZERO047", NOTE, "silent", derived("no other module of DeepSpeed 0.19.8 names these keys"), since=(0, 19, 8)
)
def keys_are_read(config: Config) -> Violations:
    """Keys that DeepSpeed takes but nothing reads any more aren't relied on.

    Prevents: settings that look effective and aren't
    Fix: remove them
    """
    defaults = {"allgather_partitions": True, "memory_efficient_linear": True}
    for key in UNREAD:
        if config.read(f"{ZERO}/{key}") not in (None, defaults.get(key, False)):
            yield from unused(config, (f"{ZERO}/{key}",), "in this version: nothing reads it")
    if config.switch("/disable_allgather"):
        yield from unused(config, ("/disable_allgather",), "in this version: nothing reads it")


@configs.rule(
    "ZERO041",
    ERROR,
    "init",
    "deepspeedai/DeepSpeed deepspeed/runtime/engine.py:634 @ 0.19.3 (an assertion, gone in 0.19.4)",
    before=(0, 19, 4),
)
def autotp_stops_at_stage_2(config: Config) -> Violations:
    """This version of DeepSpeed runs AutoTP with ZeRO up to stage 2.

    Prevents: an assertion when the engine starts
    Fix: stage 2
    """
    size = config.whole("/tensor_parallel/autotp_size")
    if size and size > 1 and config.stage == 3:
        message = f"autotp_size: {size} with ZeRO stage 3 is refused: this DeepSpeed takes at most 2"
        yield Violation(
            where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 2, or DeepSpeed 0.19.4 or later"
        )


@building.rule("ZERO021", ERROR, "init", deepspeed_now("runtime/engine.py:2299; runtime/zero/utils.py:45"))
def optimizers_are_tested_with_zero(config: Config) -> Violations:
    """With ZeRO, DeepSpeed builds optimizers that it was tested with, or is told to allow others.

    Prevents: `You are using an untested ZeRO Optimizer`
    Fix: AdamW, or allow it
    """
    name, stage = config.optimizer, config.stage
    if name is None or not stage or name in _TESTED or config.switch("/zero_allow_untested_optimizer") is not False:
        return
    written = shown(config.value("/optimizer/type"))
    message = f"optimizer {written} with ZeRO stage {stage} is untested, so DeepSpeed refuses it"
    hint = 'AdamW, or "zero_allow_untested_optimizer": true'
    yield Violation(where=config.locate("/optimizer/type"), message=message, hint=hint)


#: What the engine builds for these is in `ZERO_SUPPORTED_OPTIMIZERS`; `Muon` since it is a type of its own. mup's
#: MuAdam and MuAdamW are Adams of torch; 1-bit optimizers have a rule of their own.
_TESTED: Final = frozenset({"adam", "adamw", "adagrad", "lion", "muon", "muadam", "muadamw"}) | frozenset(
    {"onebitadam", "zerooneadam", "onebitlamb"}
)


@building.rule("ZERO042", ERROR, "init", deepspeed("runtime/zero/utils.py:45"))
def lamb_needs_whole_tensors(config: Config) -> Violations:
    """LAMB's trust ratio is a layer's norm, which ZeRO's flat partitions don't have.

    Prevents: `You are using an untested ZeRO Optimizer`, or trust ratios of partitions
    Fix: stage 0 or AdamW
    """
    stage = config.stage
    if config.optimizer == "lamb" and stage:
        what = "computes its trust ratio over flat partitions, not layers"
        message = f"optimizer {shown(config.value('/optimizer/type'))} with ZeRO stage {stage} {what}"
        yield Violation(where=config.locate("/optimizer/type"), message=message, hint="stage 0, or AdamW")


@configs.rule("ZERO065", NOTE, "silent", deepspeed_now("runtime/engine.py:2303; runtime/engine.py:2635"))
def bf16_optimizer_has_its_own_ways(config: Config) -> Violations:
    """bf16 at stage 1 with fp32 accumulation has an optimizer of its own, which reduces gradients in its own way.

    Prevents: settings that look effective and aren't
    Fix: remove them, or stage 2
    """
    own = config.precision == "bf16" and config.stage == 1 and not config.offloads("optimizer")
    if own and config.accumulates_in in ("fp32", "float32", "float", "torch.float32"):
        asked = [key for key, default in _REDUCTION.items() if config.read(f"{ZERO}/{key}") is (not default)]
        used = (f"{ZERO}/{key}" for key in asked)
        yield from unused(config, used, "with the BF16 optimizer of stage 1 that fp32 accumulation brings")


#: How gradients are reduced, with the defaults of stage 1.
_REDUCTION: Final = {
    "overlap_comm": False,
    "contiguous_gradients": True,
    "reduce_scatter": True,
    "round_robin_gradients": False,
}
