"""Pipeline stages and interleaved chunks against layers and micro-batches."""

from __future__ import annotations

from typing import Any

from ...estimate.layout import Layout, LayoutLike
from ...estimate.stages import shortens_last_stage
from ...findings import ERROR, WARNING
from ...job.records import Job
from ...rule import Arguments
from ..columns import divides, implies
from ..numbers import divisors, listed, nearest, neighbours
from ..planned import layout_rule
from ..sources import deepspeed, derived, megatron_lm

#: The embedding and the loss, when they count as layers of the first and the last stage.
END_LAYERS = 2


def pipeline_values(job: Job) -> list[int]:
    """Stage counts that cut the layers evenly; with the ends counted as layers too, for the Megatrons."""
    layers = job.model.layers
    fitting = set(divisors(layers))
    if job.framework.runs("Megatron layers"):
        fitting.update(divisors(layers + END_LAYERS, layers))
    if job.framework.runs("Megatron-LM"):
        fitting.update(p for p in range(1, layers + 1) if shortens_last_stage(job, Layout(data=1, pipeline=p)))
    return sorted(fitting)


def _hint(job: Job, pipeline: int) -> str:
    useful = [p for p in pipeline_values(job) if job.gpus % p == 0]
    return f"pipeline: {listed(nearest(useful, pipeline))}"


def _explain_layers_and_ends(job: Job, layout: Layout) -> tuple[str, str]:
    layers = job.model.layers
    shorter = ", nor leaves layers for a shorter last stage" if job.framework.runs("Megatron-LM") else ""
    return (
        f"pipeline: {layout.pipeline} divides neither the {layers} layers nor {layers + END_LAYERS}"
        f" (embedding and loss counted as layers){shorter}",
        _hint(job, layout.pipeline),
    )


@layout_rule(
    "MLM003",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:997"),
    ("pipeline",),
    _explain_layers_and_ends,
    of=("Megatron layers",),
)
def pipeline_divides_layers_and_ends(job: Job, layout: LayoutLike) -> Any:
    """Stages hold equal numbers of layers, if need be with embedding and loss counted or the last stage shortened.

    Prevents: Megatron-LM stops at start: the number of layers is not divisible by the pipeline size.
    Fix: a layout.pipeline that divides the layers
    """
    layers = job.model.layers
    even = divides(layout.pipeline, layers) | divides(layout.pipeline, layers + END_LAYERS)
    return even | shortens_last_stage(job, layout)


def _explain_layers(job: Job, layout: Layout) -> tuple[str, str]:
    return f"pipeline: {layout.pipeline} does not divide the {job.model.layers} layers", _hint(job, layout.pipeline)


@layout_rule(
    "PIPE012",
    ERROR,
    "silent",
    derived("uneven stages wait for the fullest"),
    ("pipeline",),
    _explain_layers,
    of=("own script",),
)
def pipeline_divides_layers(job: Job, layout: LayoutLike) -> Any:
    """Stages hold equal numbers of layers.

    Prevents: No error: every step waits for the fullest stage, which may also run out of memory.
    Fix: a layout.pipeline that divides the layers
    """
    return divides(layout.pipeline, job.model.layers)


def _explain_within(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"pipeline: {layout.pipeline} stages are more than the {job.model.layers} layers",
        _hint(job, layout.pipeline),
    )


@layout_rule(
    "PIPE013",
    ERROR,
    "init",
    derived("a stage without layers has nothing to compute"),
    ("pipeline", "layers"),
    _explain_within,
    of=("Megatron layers",),
    arguments=Arguments(only=("Megatron-DeepSpeed",)),
)
def pipeline_within_layers(job: Job, layout: LayoutLike) -> Any:
    """Every stage holds at least one layer.

    Prevents: The framework stops when it builds an empty stage.
    Fix: a layout.pipeline of at most the number of layers
    """
    return layout.pipeline <= job.model.layers


def _explain_chunks(job: Job, layout: Layout) -> tuple[str, str]:
    layers = job.model.layers
    chunks = layout.pipeline * layout.virtual_pipeline
    fitting = divisors(layers // layout.pipeline) if layers % layout.pipeline == 0 else [1]
    return (
        f"virtual_pipeline: {layout.virtual_pipeline} × pipeline: {layout.pipeline} makes {chunks} chunks,"
        f" which does not divide the {layers} layers",
        f"virtual_pipeline: {listed(fitting)}",
    )


@layout_rule(
    "MLM015",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:968"),
    ("virtual_pipeline", "pipeline"),
    _explain_chunks,
    of=("Megatron-LM",),
)
def chunks_divide_layers(job: Job, layout: LayoutLike) -> Any:
    """With interleaving, every chunk of every stage holds the same number of layers.

    Prevents: Megatron stops at start: the layers of a stage are not divisible by its chunks.
    Fix: a layout.virtual_pipeline that divides the layers of a stage
    """
    chunks = layout.pipeline * layout.virtual_pipeline
    return implies(layout.virtual_pipeline > 1, divides(chunks, job.model.layers))


def _explain_need_stages(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"virtual_pipeline: {layout.virtual_pipeline} with pipeline: {layout.pipeline} has no stages to interleave",
        "virtual_pipeline: 1",
    )


@layout_rule(
    "MLM014",
    ERROR,
    "init",
    megatron_lm("training/arguments.py:1000"),
    ("virtual_pipeline", "pipeline"),
    _explain_need_stages,
    of=("Megatron-LM",),
)
def chunks_need_stages(_: Job, layout: LayoutLike) -> Any:
    """Interleaving needs a pipeline.

    Prevents: Megatron stops at start: interleaving one stage makes no sense.
    Fix: layout.virtual_pipeline: 1, or a larger pipeline
    """
    return (layout.virtual_pipeline == 1) | (layout.pipeline > 1)


def _explain_no_chunks(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"virtual_pipeline: {layout.virtual_pipeline} is not available with framework: {job.framework},"
        " whose schedule is not interleaved",
        "virtual_pipeline: 1 (or framework: megatron-lm)",
    )


@layout_rule(
    "PIPE011",
    ERROR,
    "silent",
    derived("deepspeed/runtime/pipe/schedule.py has no interleaved schedule"),
    ("virtual_pipeline",),
    _explain_no_chunks,
    of=("DeepSpeed engine",),
)
def engine_has_no_chunks(_: Job, layout: LayoutLike) -> Any:
    """DeepSpeed's pipeline engine runs one chunk a stage.

    Prevents: No error: the chunks would be ignored, and the bubble would be larger than planned.
    Fix: layout.virtual_pipeline: 1, or framework: megatron-lm
    """
    return layout.virtual_pipeline == 1


def _explain_fill(_: Job, layout: Layout) -> tuple[str, str]:
    fitting = neighbours(layout.pipeline, layout.gradient_accumulation)
    return (
        f"gradient_accumulation: {layout.gradient_accumulation} micro-batches are not a multiple of the"
        f" {layout.pipeline} pipeline stages, as interleaving needs",
        f"gradient_accumulation: {listed(fitting)}, or virtual_pipeline: 1",
    )


@layout_rule(
    "MLM016",
    ERROR,
    "init",
    megatron_lm("core/pipeline_parallel/schedules.py:1160"),
    ("gradient_accumulation", "virtual_pipeline", "pipeline", "gpus"),
    _explain_fill,
    of=("Megatron-LM",),
    arguments=Arguments(unless=("--microbatch-group-size-per-virtual-pipeline-stage", "--rampup-batch-size")),
)
def interleaved_micro_batches_fill_stages(_: Job, layout: LayoutLike) -> Any:
    """The interleaved schedule runs micro-batches in groups of as many as there are stages.

    Prevents: The first step fails: micro-batches are scheduled in groups of the pipeline size.
    Fix: a gradient_accumulation that is a multiple of pipeline
    """
    return (layout.virtual_pipeline == 1) | divides(layout.pipeline, layout.gradient_accumulation)


def _explain_bubble(_: Job, layout: Layout) -> tuple[str, str]:
    steps = layout.pipeline + layout.gradient_accumulation - 1
    idle = round(100 * (layout.pipeline - 1) / steps)
    return (
        f"gradient_accumulation: {layout.gradient_accumulation} is less than pipeline: {layout.pipeline}:"
        f" every stage idles {idle}% of the step",
        f"gradient_accumulation: {layout.pipeline} or more, or a smaller pipeline",
    )


@layout_rule(
    "BATCH011",
    WARNING,
    "silent",
    derived("bubble of (stages - 1) / (micro-batches + stages - 1)"),
    ("gradient_accumulation", "pipeline", "gpus"),
    _explain_bubble,
    arguments=Arguments(unless=("--rampup-batch-size", "--step-batch-size-schedule")),
)
def micro_batches_fill_pipeline(_: Job, layout: LayoutLike) -> Any:
    """A pipeline needs at least as many micro-batches as stages, or the bubble is longer than the work.

    Prevents: No error: with fewer micro-batches than stages most GPUs wait most of the time.
    Fix: a smaller micro_batch or data, a larger global_batch, or fewer stages
    """
    return layout.gradient_accumulation >= layout.pipeline


def _explain_pinned(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"pipeline: {layout.pipeline} needs a script that builds a deepspeed.pipe.PipelineModule",
        f"pipeline: 1, or pin layout.pipeline: {layout.pipeline} if the script does",
    )


@layout_rule(
    "PIPE014",
    ERROR,
    "silent",
    derived("deepspeed.initialize pipelines only a PipelineModule"),
    ("pipeline",),
    _explain_pinned,
    of=("own script",),
    applies=lambda job: job.pins.pipeline is None,
)
def pipeline_is_pinned(_: Job, layout: LayoutLike) -> Any:
    """A script for DeepSpeed must build a PipelineModule to have stages: only the user knows whether it does.

    Prevents: No error: without a PipelineModule every rank trains the whole model.
    Fix: layout.pipeline: 1; pin another value if the script builds a PipelineModule
    """
    return layout.pipeline == 1


def _explain_trainer(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"pipeline: {layout.pipeline} is not available with framework: huggingface",
        "pipeline: 1 (or framework: megatron-deepspeed or megatron-lm)",
    )


@layout_rule(
    "HF020",
    ERROR,
    "silent",
    derived("the Trainer passes a plain module to deepspeed.initialize, never a PipelineModule"),
    ("pipeline",),
    _explain_trainer,
    of=("Trainer",),
)
def trainer_has_no_pipeline(_: Job, layout: LayoutLike) -> Any:
    """The Trainer runs one pipeline stage.

    Prevents: No error: each rank would train the whole model, and memory would not be what was planned.
    Fix: layout.pipeline: 1, or a Megatron framework
    """
    return layout.pipeline == 1


def _explain_zero(_: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"zero_stage: {layout.zero_stage} with pipeline: {layout.pipeline} is refused: at most 1 under a pipeline",
        "zero_stage: 1 or 0, or pipeline: 1",
    )


@layout_rule(
    "PIPE001",
    ERROR,
    "init",
    deepspeed("runtime/pipe/engine.py:76"),
    ("zero_stage", "pipeline"),
    _explain_zero,
    of=("own script", "Megatron-DeepSpeed"),
)
def zero_shards_states_only_in_pipeline(_: Job, layout: LayoutLike) -> Any:
    """Under a pipeline ZeRO stops at stage 1: gradients accumulate over micro-batches in place.

    Prevents: DeepSpeed stops at start: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism.
    Fix: layout.zero_stage: 1 or 0, or pipeline: 1
    """
    return (layout.zero_stage <= 1) | (layout.pipeline == 1)


def _explain_one(job: Job, layout: Layout) -> tuple[str, str]:
    return (
        f"tensor: {layout.tensor}, pipeline: {layout.pipeline} and context: {layout.context} are not combined by"
        f" framework: {job.framework}: at most one may be more than 1",
        "set all but one of tensor, pipeline and context to 1 (or use a Megatron framework)",
    )


@layout_rule(
    "PIPE015",
    ERROR,
    "init",
    derived("AutoTP and Ulysses each build their own process groups and know no pipeline topology"),
    ("tensor", "pipeline", "context"),
    _explain_one,
    of=("AutoTP",),
)
def one_model_parallelism(_: Job, layout: LayoutLike) -> Any:
    """Of tensor, pipeline and context parallelism, DeepSpeed without Megatron combines no two.

    Prevents: DeepSpeed's process groups would overlap, and ranks would reduce over the wrong partners.
    Fix: only one of tensor, pipeline and context above 1, or a Megatron framework
    """
    kinds = (layout.tensor > 1) * 1 + (layout.pipeline > 1) * 1 + (layout.context > 1) * 1
    return kinds <= 1
