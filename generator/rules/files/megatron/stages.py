"""Layers over pipeline stages and interleaved chunks in Megatron arguments."""

from __future__ import annotations

from ....documents.megatron_run import (
    CHUNKS,
    COUNTED_ENDS,
    FIRST_STAGE,
    LAST_STAGE,
    LAYERS,
    LAYERS_PER_CHUNK,
    PIPELINE,
    STAGE_LAYOUT,
    MegatronRun,
)
from ....findings import ERROR, Violations
from ...numbers import divisors, listed, nearest, neighbours
from ...sources import megatron_deepspeed, megatron_lm
from .rule import at, excludes, lm_runs, mds_runs


@lm_runs.rule("MLM003", ERROR, "init", megatron_lm("training/arguments.py:997"))
def stages_share_layers(run: MegatronRun) -> Violations:
    """Pipeline stages hold equal numbers of layers, those that are counted or set apart considered.

    Prevents: AssertionError: Number of layers should be divisible by the pipeline-model-parallel size
    Fix: change the stages, count the ends as layers, or set the last stage's layers
    """
    layers, stages = run.shared_layers, run.pipeline
    if layers is None or stages is None or run.has("--decoder-num-layers"):
        return
    ends = {name: run.size(name) for name in (FIRST_STAGE, LAST_STAGE) if run.has(name)}
    if ends and None not in ends.values():
        yield from _middle_stages(run, layers, stages, [count or 0 for count in ends.values()])
    elif not ends and layers % stages:
        counted = sum(map(run.has, COUNTED_ENDS))
        plus = f" with {counted} more for the ends counted is {layers}," if counted else " is"
        message = f"{LAYERS} {layers - counted}{plus} not a multiple of {PIPELINE} {stages}"
        last = layers - (stages - 1) * -(-layers // stages)
        hint = f"use {PIPELINE} {listed(nearest(divisors(layers), stages, 4))}"
        yield at(run, PIPELINE, message, f"{hint}, or add {LAST_STAGE} {last}" if last > 0 else hint)


def _middle_stages(run: MegatronRun, layers: int, stages: int, ends: list[int]) -> Violations:
    """The stages between those whose layers are given."""
    rest, middle = layers - sum(ends), stages - len(ends)
    fits = (rest == 0) == (middle == 0) and (middle == 0 or rest % middle == 0)
    if rest >= 0 and (fits or middle < 0):
        return
    given = " and ".join(run.shown(name) for name in (FIRST_STAGE, LAST_STAGE) if run.has(name))
    message = f"{given} leave {rest} of {layers} layers for the other {middle} stages, which must share them evenly"
    name = run.first_of(LAST_STAGE, FIRST_STAGE)
    own = run.size(name) or 1
    room = rest + own  # of this end and of the stages between
    near = own + (room - own) % middle if middle > 0 else 0
    fitting = [count for count in (near - middle, near, near + middle) if 0 < count < room]
    hint = f"use {name} {listed(nearest(fitting, own, 3))}" if middle > 0 and fitting else None
    yield at(run, name, message, hint)


@lm_runs.rule("MLM014", ERROR, "init", megatron_lm("training/arguments.py:1000-1009"))
def interleaving_has_stages(run: MegatronRun) -> Violations:
    """Interleaving needs a pipeline: more than one stage, more than two where sends don't overlap.

    Prevents: AssertionError: When interleaved schedule is used ...
    Fix: use more stages, or no interleaving
    """
    stages, name = run.pipeline, run.first_of(LAYERS_PER_CHUNK, CHUNKS)
    if stages is None or run.chunks in (None, 1):
        return
    alone = run.has("--no-overlap-p2p-communication")
    least, why = (3, " with --no-overlap-p2p-communication") if alone else (2, "")
    if stages < least:
        message = f"{run.shown(name)}{why} needs {PIPELINE} {least} or more, not {stages}"
        yield at(run, name, message, f"use {PIPELINE} {least}, or remove {name}")


@lm_runs.rule("MLM015", ERROR, "init", megatron_lm("training/arguments.py:968-973"))
def chunks_share_layers(run: MegatronRun) -> Violations:
    """Every chunk of an interleaved stage holds the same number of layers.

    Prevents: AssertionError: number of layers per pipeline stage must be divisible ...
    Fix: use chunks that divide a stage's layers
    """
    layers, stages = run.shared_layers, run.pipeline
    if layers is None or stages is None:
        return
    if run.has_any(FIRST_STAGE, LAST_STAGE):
        yield from _uneven_chunks(run, layers, stages)
        return
    each = layers // stages
    for name in (LAYERS_PER_CHUNK, CHUNKS):
        size = run.size(name)
        if size and layers % stages == 0 and each % size:
            message = f"{name} {size} does not divide the {each} layers of a stage ({layers} over {stages} stages)"
            yield at(run, name, message, f"use {name} {listed(nearest(divisors(each), size, 4))}")


def _uneven_chunks(run: MegatronRun, layers: int, stages: int) -> Violations:
    """Chunks of the stages whose layers are given, and of those between them."""
    chunks = run.size(CHUNKS) or 1
    ends = {name: run.size(name) or 0 for name in (FIRST_STAGE, LAST_STAGE) if run.has(name)}
    for name, held in ends.items():
        if held % chunks:
            hint = f"use {name} {listed(neighbours(chunks, held))}"
            yield at(run, name, f"{CHUNKS} {chunks} does not divide {name} {held}", hint)
    rest, middle = layers - sum(ends.values()), stages - len(ends)
    each = rest // middle if middle > 0 and rest > 0 and rest % middle == 0 else 0
    if each % chunks:
        message = f"{CHUNKS} {chunks} does not divide the {each} layers of a stage between the ends"
        yield at(run, CHUNKS, message, f"use {CHUNKS} {listed(nearest(divisors(each), chunks, 4))}")


@lm_runs.rule(
    "MLM055", ERROR, "init", megatron_lm("training/arguments.py:926, core/transformer/transformer_config.py:2229-2259")
)
def stages_are_cut_one_way(run: MegatronRun) -> Violations:
    """Stages and chunks are cut in one way only.

    Prevents: AssertionError, or ValueError
    Fix: keep one
    """
    yield from excludes(run, LAYERS_PER_CHUNK, [CHUNKS, STAGE_LAYOUT])
    yield from excludes(run, CHUNKS, [STAGE_LAYOUT])
    yield from excludes(run, STAGE_LAYOUT, [FIRST_STAGE, LAST_STAGE, *COUNTED_ENDS])
    for end in (FIRST_STAGE, LAST_STAGE):
        yield from excludes(run, end, COUNTED_ENDS)
        yield from excludes(run, LAYERS_PER_CHUNK, [end], f": {CHUNKS} goes with uneven stages")


@mds_runs.rule("MDS010", ERROR, "init", megatron_deepspeed("megatron/arguments.py:173-176"))
def deepspeed_interleaves_long_pipelines(run: MegatronRun) -> Violations:
    """Interleaving needs more than two stages, and chunks that divide the layers.

    Prevents: AssertionError: pipeline-model-parallel size should be greater than 2 with interleaved schedule
    Fix: use more stages, or no interleaving
    """
    name, stages, layers = LAYERS_PER_CHUNK, run.pipeline, run.layers
    size = run.size(name)
    if size is not None and stages is not None and stages <= 2:
        message = f"{name} {size} needs {PIPELINE} 3 or more, not {stages}"
        yield at(run, name, message, f"use {PIPELINE} 4, or remove {name}")
    if size is not None and layers and layers % size:
        hint = f"use {name} {listed(nearest(divisors(layers), size, 4))}"
        yield at(run, name, f"{name} {size} does not divide {LAYERS} {layers}", hint)
