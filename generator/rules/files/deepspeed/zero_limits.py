"""What ZeRO's optimizers refuse when the engine starts, or when they save."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now
from .subjects import configs
from .values import removed, shown

ZERO: Final = "/zero_optimization"


@configs.rule("ZERO015", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:365"))
def buckets_are_even(config: Config) -> Violations:
    """allgather_bucket_size is even at stages 1 and 2: two 16-bit elements are NCCL's 4 bytes.

    Prevents: `allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2`
    Fix: an even number
    """
    size = config.whole(f"{ZERO}/allgather_bucket_size")
    if config.stage in (1, 2) and size is not None and size % 2 and not _steps_in_bf16_optimizer(config):
        message = f"allgather_bucket_size: {shown(config.value(f'{ZERO}/allgather_bucket_size'))} is odd"
        where = config.locate(f"{ZERO}/allgather_bucket_size")
        yield Violation(where=where, message=message, hint=f"allgather_bucket_size: {size + 1}")


def _steps_in_bf16_optimizer(config: Config) -> bool:
    """Whether bf16 at stage 1 accumulates in fp32 and so has an optimizer of its own."""
    accumulated = config.accumulates_in in ("fp32", "float32", "float", "torch.float32")
    return config.precision == "bf16" and config.stage == 1 and accumulated


def _sums(config: Config) -> bool:
    operation = config.value("/gradient_allreduce_op")
    return isinstance(operation, str) and operation.lower() == "sum"


def _scaled_before(config: Config, stage: int) -> Violations:
    """Gradients scaled before they are reduced, where reduce_scatter is on."""
    if config.stage != stage or config.switch(f"{ZERO}/reduce_scatter", True) is not True:
        return
    factor = config.number("/gradient_predivide_factor")
    with_scatter = f"at stage {stage} with reduce_scatter, which is its default"
    if factor is not None and factor != 1:
        message = f"gradient_predivide_factor: {shown(factor)} is refused {with_scatter}"
        where = config.locate("/gradient_predivide_factor")
        edits = removed(config, "/gradient_predivide_factor")
        yield Violation(where=where, message=message, hint="remove it, or reduce_scatter: false", edits=edits)
    if config.switch("/prescale_gradients"):
        message = f"prescale_gradients: true is refused {with_scatter}"
        where, edits = config.locate("/prescale_gradients"), removed(config, "/prescale_gradients")
        yield Violation(where=where, message=message, hint="remove it, or reduce_scatter: false", edits=edits)


@configs.rule("ZERO016", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:346"))
def stage_2_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 2 scales gradients after they are reduced.

    Prevents: `pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled`
    Fix: leave both out
    """
    if not _sums(config):
        yield from _scaled_before(config, 2)


@configs.rule("ZERO017", ERROR, "init", deepspeed_now("runtime/zero/stage3.py:395"))
def stage_3_scales_afterwards(config: Config) -> Violations:
    """With reduce_scatter, stage 3 scales gradients after they are reduced.

    Prevents: `gradient_predivide_factor != 1.0 is not yet supported with ZeRO-3 with reduce scatter enabled`
    Fix: leave both out
    """
    yield from _scaled_before(config, 3)


@configs.rule("ZERO018", ERROR, "init", deepspeed_now("runtime/engine.py:2650"))
def stage_1_is_the_new_one(config: Config) -> Violations:
    """The old implementation of stage 1 is gone since DeepSpeed 0.5.9.

    Prevents: `The deprecated version of ZeRO Stage 1 is not supported`
    Fix: remove the key
    """
    if config.switch(f"{ZERO}/legacy_stage1") and config.stage:
        message = "legacy_stage1: true asks for what DeepSpeed 0.5.9 took out"
        where, edits = config.locate(f"{ZERO}/legacy_stage1"), removed(config, f"{ZERO}/legacy_stage1")
        yield Violation(where=where, message=message, hint="remove legacy_stage1", edits=edits)


@configs.rule("ZERO019", WARNING, "silent", deepspeed_now("runtime/engine.py:2758"))
def stage_3_saves_rigid_checkpoints(config: Config) -> Violations:
    """Stage 3 has no elastic checkpoints: the engine doesn't hand the key to its optimizer.

    Prevents: checkpoints that another number of replicas can't load
    Fix: universal checkpoints
    """
    if config.switch(f"{ZERO}/elastic_checkpoint") and config.stage == 3:
        message = (
            "elastic_checkpoint: true has no effect at stage 3: checkpoints are for as many replicas as wrote them"
        )
        where, edits = config.locate(f"{ZERO}/elastic_checkpoint"), removed(config, f"{ZERO}/elastic_checkpoint")
        yield Violation(where=where, message=message, hint="remove it, and use universal checkpoints", edits=edits)


#: The releases that refuse Muon with reduce_scatter and offload at stages 1 and 2, the end left out.
MUON_OFFLOAD_REFUSED: Final = ((0, 19, 3), (0, 19, 8))


@submissions.rule(
    "ZERO034",
    ERROR,
    "init",
    f"{deepspeed_now('runtime/zero/stage3.py:361')}; {deepspeed('runtime/zero/stage_1_and_2.py:231')}",
    since=(0, 18, 9),
    reads=("DeepSpeed config",),
)
def muon_reduces_whole_gradients(submission: Submission) -> Violations:
    """Muon has reduce_scatter off at stage 3 and, from 0.19.3 to 0.19.7, beside an offloaded optimizer.

    Prevents: `Muon and reduce scatter cannot be used together`
    Fix: reduce_scatter: false
    """
    offload_refused = MUON_OFFLOAD_REFUSED[0] <= submission.deepspeed_version < MUON_OFFLOAD_REFUSED[1]
    for config in configs(submission):
        stage = config.stage
        beside = offload_refused and stage in (1, 2) and config.offloads("optimizer")
        if config.optimizer != "muon" or not (stage == 3 or beside):
            continue
        if config.switch(f"{ZERO}/reduce_scatter", True):
            offload = " and offload_optimizer" if beside else ""
            message = f"Muon at stage {stage} with reduce_scatter, which is its default,{offload} is refused"
            here = config.has(f"{ZERO}/reduce_scatter")
            where = config.locate(f"{ZERO}/reduce_scatter" if here else "/optimizer/type")
            yield Violation(where=where, message=message, hint='"reduce_scatter": false')


@submissions.rule(
    "ZERO036", ERROR, "init", deepspeed_now("runtime/engine.py:2031"), since=(0, 19, 4), reads=("DeepSpeed config",)
)
def callers_overlap_at_stage_2(submission: Submission) -> Violations:
    """managed_gradient_accumulation: false goes with overlap_comm only from stage 2, and not with a pipeline.

    Prevents: `managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage 2`
    Fix: the default, true
    """
    for config in configs(submission):
        pointer = "/managed_gradient_accumulation"
        if config.switch(pointer, True) is not False:
            continue
        stage, stages = config.stage, submission.world.pipeline
        others = [f"overlap_comm at stage {stage}"] if stage in (0, 1) and config.switch(f"{ZERO}/overlap_comm") else []
        others += [f"{stages} pipeline stages"] if stages > 1 else []
        others += ["compile.deepcompile"] if config.switch("/compile/deepcompile") else []
        if others:
            message = f"managed_gradient_accumulation: false is refused with {', '.join(others)}"
            yield Violation(where=config.locate(pointer), message=message, hint="leave it out, or the other")


@configs.rule(
    "ZERO048",
    ERROR,
    "init",
    deepspeed_now("runtime/zero/stage_1_and_2.py:213; runtime/engine.py:2308"),
    since=(0, 19, 7),
)
def norms_are_computed_for_clipping(config: Config) -> Violations:
    """compute_grad_norm: false needs gradient_clipping: 0, and neither offload, ZenFlow nor a BF16 optimizer.

    Prevents: `zero_optimization.compute_grad_norm=false requires gradient_clipping=0`
    Fix: true, the default
    """
    pointer = f"{ZERO}/compute_grad_norm"
    if config.switch(pointer, True) is not False or config.stage not in (1, 2):
        return
    clip = config.number("/gradient_clipping") if config.has("/gradient_clipping") else 1.0
    why = []
    if clip is not None and clip > 0:
        why.append(f"gradient_clipping is {shown(clip)}{'' if config.has('/gradient_clipping') else ' by default'}")
    if config.offloads("optimizer"):
        why.append(f"the optimizer is offloaded to {config.offload('optimizer')}")
    if config.value(f"{ZERO}/zenflow") is not None:
        why.append("ZenFlow is on")
    if _steps_in_bf16_optimizer(config) and not config.offloads("optimizer"):
        why.append("bf16 at stage 1 accumulates in fp32")
    if why:
        message = f"compute_grad_norm: false is refused: {', '.join(why)}"
        yield Violation(
            where=config.locate(pointer), message=message, hint="true, or gradient_clipping: 0 without the others"
        )


@configs.rule("ZERO037", WARNING, "silent", deepspeed_now("runtime/zero/stage_1_and_2.py:300"))
def offload_copies_contiguous_gradients(config: Config) -> Violations:
    """Contiguous gradients are what CPU offload copies, so they aren't switched off beside it.

    Prevents: a setting that looks effective and is not
    Fix: leave it out
    """
    pointer = f"{ZERO}/contiguous_gradients"
    if config.stage in (1, 2) and config.offloads("optimizer") and config.switch(pointer, True) is False:
        message = "contiguous_gradients: false has no effect: offload switches them on"
        where, edits = config.locate(pointer), removed(config, pointer)
        yield Violation(where=where, message=message, hint="remove contiguous_gradients", edits=edits)
