"""What ZeRO's optimizers refuse when the engine starts, or when they save."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.sources import deepspeed, deepspeed_now
from ...world import world_of
from ..config import ZERO, Config
from .subjects import Run, configs, runs
from .values import removed, shown
from .zero import has_bf16_optimizer

#: The releases that refuse Muon with reduce_scatter and offload at stages 1 and 2, the end left out.
_MUON_OFFLOAD_REFUSED: Final = ((0, 19, 3), (0, 19, 8))


@configs.rule("ZERO015", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:365"))
def buckets_are_even(config: Config) -> Violations:
    """allgather_bucket_size is even at stages 1 and 2: two 16-bit elements are NCCL's 4 bytes.

    Prevents: `allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2`
    Fix: set it to an even number"""
    pointer = f"{ZERO}/allgather_bucket_size"
    size = config.whole(pointer)
    if config.stage in (1, 2) and size is not None and size % 2 and not has_bf16_optimizer(config):
        message = f"allgather_bucket_size: {shown(config.value(pointer))} is odd"
        yield Violation(config.locate(pointer), message, f"set allgather_bucket_size to {size + 1}")


def _scaled_before(config: Config, stage: int) -> Violations:
    """Gradients scaled before they are reduced, where reduce_scatter is on."""
    if config.stage != stage or not config.switch(f"{ZERO}/reduce_scatter"):
        return
    factor, scaled = "/gradient_predivide_factor", "/prescale_gradients"
    found = [factor] if config.number(factor) not in (1, None) else []
    found += [scaled] if config.switch(scaled) else []
    for pointer in found:
        message = f"{pointer[1:]}: {shown(config.value(pointer))} is refused at stage {stage} with reduce_scatter,"
        where, hint = config.locate(pointer), f"remove {pointer[1:]}, or set reduce_scatter to false"
        edits = removed(config, pointer)
        yield Violation(where, f"{message} which is its default", hint, edits=edits)


@configs.rule("ZERO016", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:346"))
def stage_2_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 2 scales gradients after they are reduced.

    Prevents: `pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled`
    Fix: remove gradient_predivide_factor and prescale_gradients"""
    if (config.text("/gradient_allreduce_op") or "").lower() != "sum":
        yield from _scaled_before(config, 2)


@configs.rule("ZERO017", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:395"))
def stage_3_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 3 scales gradients after they are reduced.

    Prevents: `gradient_predivide_factor != 1.0 is not yet supported with ZeRO-3 with reduce scatter enabled`
    Fix: remove gradient_predivide_factor and prescale_gradients"""
    yield from _scaled_before(config, 3)


@configs.rule("ZERO018", ERROR, "init", deepspeed_now("runtime/engine.py:2650"))
def stage_1_is_the_new_one(config: Config) -> Violations:
    """legacy_stage1 is not set: DeepSpeed 0.5.9 removed the old implementation of stage 1.

    Prevents: `The deprecated version of ZeRO Stage 1 is not supported`
    Fix: remove legacy_stage1"""
    pointer = f"{ZERO}/legacy_stage1"
    if config.switch(pointer) and config.stage:
        message = "legacy_stage1: true is refused: DeepSpeed 0.5.9 removed it"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where, message, "remove legacy_stage1", edits=edits)


@configs.rule("ZERO019", WARNING, "silent", deepspeed_now("runtime/engine.py:2758"))
def stage_3_saves_rigid_checkpoints(config: Config) -> Violations:
    """elastic_checkpoint is not set at stage 3: the engine doesn't hand the key to its optimizer.

    Prevents: checkpoints that another number of replicas can't load
    Fix: use universal checkpoints"""
    pointer = f"{ZERO}/elastic_checkpoint"
    if config.switch(pointer) and config.stage == 3:
        message = "elastic_checkpoint: true has no effect at stage 3:"
        message += " checkpoints are for as many replicas as wrote them"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where, message, "remove it, and use universal checkpoints", edits=edits)


@configs.rule(
    "ZERO034",
    ERROR,
    "init",
    f"{deepspeed_now('runtime/zero/stage3.py:361')}; {deepspeed('runtime/zero/stage_1_and_2.py:231')}",
    since=(0, 18, 9),
)
def muon_reduces_whole_gradients(config: Config) -> Violations:
    """With Muon, reduce_scatter is off at stage 3 and, from 0.19.3 to 0.19.7, with an offloaded optimizer.

    Prevents: `Muon and reduce scatter cannot be used together`
    Fix: set reduce_scatter to false"""
    first, end = _MUON_OFFLOAD_REFUSED
    offloaded = first <= config.version < end and config.stage in (1, 2) and config.offloads("optimizer")
    pointer = f"{ZERO}/reduce_scatter"
    if config.optimizer == "muon" and (config.stage == 3 or offloaded) and config.switch(pointer):
        offload = " and offload_optimizer" if offloaded else ""
        message = f"Muon at stage {config.stage} is refused with reduce_scatter, which is its default,{offload}"
        where = config.locate(pointer if config.has(pointer) else "/optimizer/type")
        yield Violation(where, message.rstrip(","), 'set "reduce_scatter" to false')


@runs.rule("ZERO036", ERROR, "init", deepspeed_now("runtime/engine.py:2031"), since=(0, 19, 4))
def callers_overlap_at_stage_2(run: Run) -> Violations:
    """managed_gradient_accumulation: false is used with overlap_comm only from stage 2, and not with a pipeline.

    Prevents: `managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage 2`
    Fix: remove managed_gradient_accumulation"""
    config, stages, pointer = run.config, world_of(run.submission).pipeline, "/managed_gradient_accumulation"
    if config.switch(pointer) is not False:
        return
    overlaps = config.stage in (0, 1) and config.switch(f"{ZERO}/overlap_comm")
    others = [f"overlap_comm at stage {config.stage}"] if overlaps else []
    others += [f"{stages} pipeline stages"] if stages > 1 else []
    others += ["compile.deepcompile"] if config.switch("/compile/deepcompile") else []
    if others:
        message = f"managed_gradient_accumulation: false is refused with {', '.join(others)}"
        yield Violation(config.locate(pointer), message, "remove it, or the others")


@configs.rule(
    "ZERO048",
    ERROR,
    "init",
    deepspeed_now("runtime/zero/stage_1_and_2.py:213; runtime/engine.py:2308"),
    since=(0, 19, 7),
)
def norms_are_computed_for_clipping(config: Config) -> Violations:
    """compute_grad_norm: false requires gradient_clipping: 0, and neither offload, ZenFlow nor a BF16 optimizer.

    Prevents: `zero_optimization.compute_grad_norm=false requires gradient_clipping=0`
    Fix: remove compute_grad_norm"""
    pointer, offloaded = f"{ZERO}/compute_grad_norm", config.offloads("optimizer")
    if config.switch(pointer) is not False or config.stage not in (1, 2):
        return
    default = "" if config.has("/gradient_clipping") else " by default"
    found = {
        f"gradient_clipping is {shown(config.clipping)}{default}": (config.clipping or 0) > 0,
        f"the optimizer is offloaded to {config.offload('optimizer')}": offloaded,
        "ZenFlow is on": config.value(f"{ZERO}/zenflow") is not None,
        "bf16 at stage 1 accumulates in fp32": has_bf16_optimizer(config) and not offloaded,
    }
    reasons = [reason for reason, is_so in found.items() if is_so]
    if reasons:
        message = f"compute_grad_norm: false is refused: {', '.join(reasons)}"
        hint = "set it to true, or gradient_clipping to 0 without the others"
        yield Violation(config.locate(pointer), message, hint)


@configs.rule("ZERO037", WARNING, "silent", deepspeed_now("runtime/zero/stage_1_and_2.py:300"))
def offload_copies_contiguous_gradients(config: Config) -> Violations:
    """With offload, contiguous_gradients is not turned off: offload copies contiguous gradients.

    Prevents: The setting silently has no effect.
    Fix: remove contiguous_gradients"""
    pointer = f"{ZERO}/contiguous_gradients"
    if config.stage in (1, 2) and config.offloads("optimizer") and config.switch(pointer) is False:
        message = "contiguous_gradients: false has no effect: offload turns it on"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where, message, "remove contiguous_gradients", edits=edits)
