"""Pipeline stages and interleaved chunks against layers and micro-batches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...estimate.layout import LayoutLike
from ...facts.facts import knows
from ...findings import ERROR, NOTE, WARNING
from ...job.records import Job
from ...rule import InFiles
from ..planned import (
    IN_CONFIGS,
    Judgement,
    detail_layouts,
    divides,
    elsewhere,
    fixed_layouts,
    given,
    has_fixed_layers,
    implies,
    is_scripted,
    layouts,
    parallel_layouts,
    partition_layouts,
    replaced_layouts,
)
from ..violations import (
    deepspeed,
    derived,
    divisors,
    megatron_deepspeed,
    megatron_lm,
    nearest,
    neighbours,
)

_SIZES: Final = ("first_stage_layers", "last_stage_layers")

#: The embedding and the loss, when they count as layers of the first and the last stage.
END_LAYERS = 2


def pipeline_values(job: Job) -> list[int]:
    """The numbers of stages that the framework can cut the layers into.

    It cuts them evenly, Megatron also with both ends counted as layers, or freely.
    """
    layers = job.model.layers
    if job.engine.pipeline == "stages":
        return list(range(1, layers + 1))
    fitting = set(divisors(layers))
    if job.engine.has_parallel_layers:
        fitting.update(divisors(layers + END_LAYERS, layers))
    return sorted(fitting)


def chunk_values(job: Job, pipeline: int) -> list[int]:
    """The numbers of chunks with which none is empty, embedding and loss counted as layers."""
    return list(range(1, max((job.model.layers + END_LAYERS) // pipeline, 1) + 1))


def _between(job: Job, layout: LayoutLike) -> tuple[Any, Any]:
    """Stages without a size of their own, and the layers that are left for them."""
    first, last = layout.first_stage_layers, layout.last_stage_layers
    return layout.pipeline - (first > 0) - (last > 0), job.model.layers - first - last


def _hint(job: Job, pipeline: int) -> str:
    useful = [p for p in pipeline_values(job) if not knows(job, "gpus") or job.gpus % p == 0]
    return f"use {job.says('pipeline', *nearest(useful, pipeline))}"


#: A fork's option may count embeddings as layers that stages share, or weigh layers otherwise.
_STAGES_OF_LAYERS = InFiles(only=has_fixed_layers, unless=("--pp-partition-method",))
_DEFAULT_GROUPS = InFiles(
    unless=("--microbatch-group-size-per-virtual-pipeline-stage", "--rampup-batch-size")
)
_CONSTANT_BATCH = InFiles(
    unless=("--rampup-batch-size", "--step-batch-size-schedule"), severity=NOTE
)
# The layouts that each rule judges: of which engines and jobs, with the fields and facts it reads.
_interleaved = layouts(
    "gradient_accumulation", "virtual_pipeline", "pipeline", "gpus", detail="virtual_pipeline"
)
_pipelined = layouts("gradient_accumulation", "pipeline", "gpus")
_trainers = layouts("pipeline", of=lambda engine: engine.pipeline == "none")
_unpinned = layouts("pipeline", of=is_scripted, applies=lambda job: job.pins.pipeline is None)
_sharded = layouts("zero_stage", "pipeline", of=lambda engine: engine.pipeline == "module")


@fixed_layouts("pipeline").rule(
    "MDS046", ERROR, "silent", megatron_deepspeed("megatron/model/gpt_model.py:463")
)
def pipeline_divides_layers_and_ends(job: Job, layout: LayoutLike) -> Judgement:
    """Stages of Megatron-DeepSpeed hold equal numbers of layers, if necessary with embedding and
    loss counted.
    Prevents: No error: every step waits for the fullest stage, which may also run out of memory.
    Fix: set layout.pipeline to a divisor of the layers
    """
    layers, ends = job.model.layers, job.model.layers + END_LAYERS
    yield divides(layout.pipeline, layers) | divides(layout.pipeline, ends)
    message = (
        f"{job.says('pipeline', layout.pipeline)} divides neither the {layers} layers nor {ends}"
    )
    yield f"{message} (embedding and loss counted as layers)", _hint(job, layout.pipeline)


@detail_layouts(*_SIZES, "pipeline").rule(
    "MLM003",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1360 (core_v0.16.1)"),
)
def sized_stages_leave_equal_ones(job: Job, layout: LayoutLike) -> Judgement:
    """Beside a first and a last stage with sizes of their own, the other stages share the rest
    evenly.
    Prevents: Megatron-LM stops at start: the layers of the middle stages are not divisible by their
    number.
    Fix: set layout.last_stage_layers so that the rest is a multiple of the other stages
    """
    stages, rest = _between(job, layout)
    sized = (layout.first_stage_layers > 0) | (layout.last_stage_layers > 0)
    shared = (stages > 0) & (rest > 0) & divides(np.maximum(stages, 1), rest)
    yield implies(sized, shared | (stages == 0) & (rest == 0))
    message = (
        f"{_sizes(job, layout)}: the other {stages} stages cannot share the {rest} of "
        f"{job.model.layers} layers"
    )
    yield f"{message} that are left evenly", _size_hint(job, layout)


def _sizes(job: Job, layout: LayoutLike) -> str:
    """The stage sizes that are set."""
    return " and ".join(
        job.says(name, getattr(layout, name)) for name in _SIZES if getattr(layout, name) > 0
    )


def _size_hint(job: Job, layout: LayoutLike) -> str:
    """A hint with sizes near the one that is set, which leave the other stages equal ones.

    Where both ends have sizes, it is on the last stage's.
    """
    name = _SIZES[1] if layout.last_stage_layers > 0 else _SIZES[0]
    stages, rest = _between(job, layout)
    size_set = getattr(layout, name)
    chunks = getattr(layout, "virtual_pipeline", 1)  # it may still be open
    room = rest + size_set  # for this stage and the ones without a size
    if stages == 0 and room > 0:
        return f"use {job.says(name, room)}"
    fitting: list[int] = []
    if stages > 0:
        sizes = range(chunks, room, chunks)
        fitting = [size for size in sizes if (room - size) % (stages * chunks) == 0]
    if not fitting:
        return f"remove layout.{name}"
    return f"use {job.says(name, *nearest(fitting, size_set, 3))}"


@layouts("pipeline", of=is_scripted).rule(
    "PIPE012", ERROR, "silent", derived("uneven stages wait for the fullest")
)
def pipeline_divides_layers(job: Job, layout: LayoutLike) -> Judgement:
    """The pipeline size divides the layers.
    Prevents: No error: every step waits for the fullest stage, which may also run out of memory.
    Fix: set layout.pipeline to a divisor of the layers"""
    yield divides(layout.pipeline, job.model.layers)
    yield (
        f"{given(job, layout, 'pipeline')} does not divide the {job.model.layers} layers",
        _hint(job, layout.pipeline),
    )


@parallel_layouts("pipeline", "layers").rule(
    "PIPE013",
    ERROR,
    "init",
    derived("a stage without layers has nothing to compute"),
    _STAGES_OF_LAYERS,
)
def pipeline_within_layers(job: Job, layout: LayoutLike) -> Judgement:
    """Every stage holds at least one layer.
    Prevents: The framework stops when it builds an empty stage.
    Fix: set layout.pipeline to at most the number of layers"""
    yield layout.pipeline <= job.model.layers
    yield (
        f"{given(job, layout, 'pipeline')} is more than the {job.model.layers} layers",
        _hint(job, layout.pipeline),
    )


@detail_layouts("virtual_pipeline", "pipeline", *_SIZES).rule(
    "MLM015",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1404-1481 (core_v0.16.1)"),
)
def chunks_hold_layers(job: Job, layout: LayoutLike) -> Judgement:
    """Every chunk of an interleaved stage holds a layer at least; chunks of a stage with a given
    size divide it.
    Prevents: Megatron-LM stops at start: the layers of a stage are not divisible by its chunks.
    Fix: set layout.virtual_pipeline to fewer chunks, or to a divisor of the sizes of first and last
    stage
    """
    layers, chunks = job.model.layers, layout.virtual_pipeline
    stages, rest = _between(job, layout)
    first, last = layout.first_stage_layers, layout.last_stage_layers
    sized = (first > 0) | (last > 0)
    divided = (
        divides(chunks, first)
        & divides(chunks, last)
        & divides(np.maximum(stages, 1) * chunks, rest)
    )
    yield (chunks == 1) | np.where(sized, divided, chunks * layout.pipeline <= layers + END_LAYERS)
    if sized:
        message = (
            f"{job.says('virtual_pipeline', chunks)} does not divide the stages with "
            f"{_sizes(job, layout)}"
        )
        yield message, f"{_size_hint(job, layout)}, or {job.says('virtual_pipeline', 1)}"
        return
    product = f"{job.says('virtual_pipeline', chunks)} × {job.says('pipeline', layout.pipeline)}"
    message = f"{product} is {chunks * layout.pipeline} chunks, more than the {layers} layers"
    yield (
        message,
        f"use {job.says('virtual_pipeline', *nearest(chunk_values(job, layout.pipeline), chunks))}",
    )


@partition_layouts(*_SIZES).rule(
    "PIPE017", ERROR, "silent", derived("PipelineModule deals the layers by itself")
)
def engine_sizes_stages(job: Job, layout: LayoutLike) -> Judgement:
    """DeepSpeed's pipeline engine deals the layers to its stages by itself.
    Prevents: No error: the sizes of first and last stage would be ignored, and memory would differ
    from the plan.
    Fix: remove layout.first_stage_layers and layout.last_stage_layers, or use framework:
    megatron-lm
    """
    yield (layout.first_stage_layers == 0) & (layout.last_stage_layers == 0)
    message = f"{_sizes(job, layout)} cannot be set with {job.says('framework', job.framework)}"
    yield message, f"leave it out, or use {job.says('framework', 'megatron-lm')}"


@detail_layouts("virtual_pipeline", "pipeline").rule(
    "MLM014", ERROR, "init", megatron_lm("training/arguments.py:1000")
)
def chunks_need_stages(job: Job, layout: LayoutLike) -> Judgement:
    """Interleaving needs a pipeline.
    Prevents: Megatron stops at start: interleaving one stage makes no sense.
    Fix: set layout.virtual_pipeline to 1, or increase pipeline"""
    yield (layout.virtual_pipeline == 1) | (layout.pipeline > 1)
    both = given(job, layout, "virtual_pipeline", "pipeline")
    yield f"{both} has no stages to interleave", f"use {job.says('virtual_pipeline', 1)}"


@partition_layouts("virtual_pipeline").rule(
    "PIPE011", ERROR, "silent", derived("deepspeed/runtime/pipe/schedule.py")
)
def engine_has_no_chunks(job: Job, layout: LayoutLike) -> Judgement:
    """With DeepSpeed's pipeline engine, a stage is one chunk.
    Prevents: No error: the chunks would be ignored, and the bubble would be larger than planned.
    Fix: set layout.virtual_pipeline to 1, or use framework: megatron-lm"""
    yield layout.virtual_pipeline == 1
    message, hint = elsewhere(job, layout, "virtual_pipeline", 1, "megatron-lm")
    yield f"{message}, whose schedule is not interleaved", hint


@_interleaved.rule(
    "MLM016",
    ERROR,
    "init",
    megatron_lm("core/pipeline_parallel/schedules.py:1160"),
    _DEFAULT_GROUPS,
)
def interleaved_micro_batches_fill_stages(job: Job, layout: LayoutLike) -> Judgement:
    """With interleaving, the number of micro-batches is a multiple of the number of stages.
    Prevents: The first step fails: micro-batches are scheduled in groups of the pipeline size.
    Fix: set gradient_accumulation to a multiple of pipeline"""
    steps, stages = layout.gradient_accumulation, layout.pipeline
    yield (layout.virtual_pipeline == 1) | divides(stages, steps)
    fitting = job.origin.vocabulary.micro_batches(neighbours(stages, steps), layout)
    message = f"interleaving requires a multiple of {job.says('pipeline', stages)}, not"
    message += f" {job.says('gradient_accumulation', steps)}"
    yield message, f"use {fitting}, or {job.says('virtual_pipeline', 1)}"


@_pipelined.rule(
    "BATCH011", WARNING, "silent", derived("bubble: (p - 1) / (m + p - 1)"), _CONSTANT_BATCH
)
def micro_batches_fill_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """A pipeline has at least as many micro-batches as stages.
    Prevents: No error: with fewer micro-batches than stages most GPUs wait most of the time.
    Fix: use a smaller micro_batch or data, a larger global_batch, or fewer stages"""
    steps, stages = layout.gradient_accumulation, layout.pipeline
    yield steps >= stages
    bubble = round(100 * (stages - 1) / (stages + steps - 1))
    both = f"{job.says('gradient_accumulation', steps)} and {job.says('pipeline', stages)}"
    fitting = job.origin.vocabulary.micro_batches([stages], layout)
    yield (
        f"every stage waits {bubble}% of the step with {both}",
        f"use {fitting} or more, or a smaller pipeline",
    )


@_unpinned.rule(
    "PIPE014", ERROR, "silent", derived("deepspeed.initialize pipelines only a PipelineModule")
)
def pipeline_is_pinned(job: Job, layout: LayoutLike) -> Judgement:
    """A pipeline in a script for DeepSpeed is pinned: only the user knows whether it builds a
    PipelineModule.
    Prevents: No error: without a PipelineModule every rank trains the whole model.
    Fix: set layout.pipeline to 1; pin another value if the script builds a PipelineModule
    """
    yield layout.pipeline == 1
    pipeline = job.says("pipeline", layout.pipeline)
    message = f"{pipeline} needs a script that builds a deepspeed.pipe.PipelineModule"
    yield message, f"use {job.says('pipeline', 1)}, or pin layout.{pipeline} if the script does"


@_trainers.rule("HF020", ERROR, "silent", derived("the Trainer never builds a PipelineModule"))
def trainer_has_no_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """The Trainer runs one pipeline stage.
    Prevents: No error: each rank would train the whole model, and memory would differ from the
    plan.
    Fix: set layout.pipeline to 1, or use a Megatron framework
    """
    yield layout.pipeline == 1
    yield elsewhere(job, layout, "pipeline", 1, "megatron-deepspeed", "megatron-lm")


@_sharded.rule("PIPE001", ERROR, "init", deepspeed("runtime/pipe/engine.py:76"), IN_CONFIGS)
def zero_shards_states_only_in_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """With a pipeline, the ZeRO stage is 0 or 1: gradients accumulate over micro-batches in place.
    Prevents: DeepSpeed stops at start: ZeRO-2 and ZeRO-3 are incompatible with pipeline
    parallelism.
    Fix: set layout.zero_stage to 1 or 0, or pipeline to 1
    """
    yield (layout.zero_stage <= 1) | (layout.pipeline == 1)
    message = (
        f"{given(job, layout, 'zero_stage', 'pipeline')} is refused: at most 1 with a pipeline"
    )
    yield message, f"use {job.says('zero_stage', 1, 0)}, or {job.says('pipeline', 1)}"


@replaced_layouts("tensor", "pipeline", "context").rule(
    "PIPE015", ERROR, "init", derived("AutoTP and Ulysses have no pipeline topology")
)
def one_model_parallelism(job: Job, layout: LayoutLike) -> Judgement:
    """DeepSpeed without Megatron combines no two of tensor, pipeline and context parallelism.
    Prevents: DeepSpeed's process groups would overlap, and ranks would reduce over the wrong
    partners.
    Fix: keep only one of tensor, pipeline and context above 1, or use a Megatron framework
    """
    yield (layout.tensor > 1) * 1 + (layout.pipeline > 1) * 1 + (layout.context > 1) * 1 <= 1
    tensor, pipeline, context = (
        job.says(key, getattr(layout, key)) for key in ("tensor", "pipeline", "context")
    )
    framework = job.says("framework", job.framework)
    message = (
        f"{tensor}, {pipeline} and {context} are not combined by {framework}: at most "
        "one may be more than 1"
    )
    yield (
        message,
        "set all but one of tensor, pipeline and context to 1, or use a Megatron framework",
    )
