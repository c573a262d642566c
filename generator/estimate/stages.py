"""Pipeline stages: how layers are dealt to them and to their chunks, and what they hold.

A framework deals layers in one of four ways: evenly; evenly, with embedding and loss counted as
layers; by a number for the first or the last stage; or by a list of all chunks. Chunk `row` of
`stage` is the (row × stages + stage)th of the model. **Source**: NVIDIA/Megatron-LM
megatron/core/transformer/transformer_block.py, get_num_layers_to_build, and transformer_layer.py,
get_transformer_layer_offset @ core_v0.16.1; DeepSpeed's ways are said where they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..catalog.layers.stack import Layer, Stack
from ..catalog.model import Model
from ..dataclass import dataclass
from ..job.records import Job
from . import model_size
from .alike import distinct
from .layout import Layout, LayoutLike
from .model_size import over_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Layers of every chunk: of a usual chunk by its stage, and what single chunks have more or
    less. The flags say by which options Megatron-LM is told so.
    """

    first: Any  #: layers of a usual chunk of the first stage
    inner: Any  #: of the stages between the first and the last
    last: Any
    rounds: Any = 0  #: in a list of chunks, the first so many of each stage have a layer more
    rest: Any = 0  #: in a list of chunks, so many stages have one more chunk with a layer more
    before: Any = 0  #: layers that the model's first chunk lacks
    after: Any = 0  #: layers that the model's last chunk lacks
    counts_embedding: Any = False  #: `--account-for-embedding-in-pipeline-split`
    counts_loss: Any = False  #: `--account-for-loss-in-pipeline-split`
    #: `--decoder-first-pipeline-num-layers`, `--decoder-last-pipeline-num-layers`
    sizes_ends: Any = False
    lists_chunks: Any = False  #: `--pipeline-model-parallel-layout`


def split(job: Job, layout: LayoutLike) -> Split:
    """Deal the layers of `job`: evenly where that can be, else by the framework's means.

    Where one or two layers are missing for an even deal, Megatron-LM counts the loss, or embedding
    and loss, as layers. Where more are, and stages have one chunk each, its last stage, which has
    the head to compute, holds fewer. Else every chunk is listed. Stages that are pinned come before
    all these.
    """
    if job.engine.balances_stages:
        return _balanced(job, layout)
    layers, chunks = job.model.layers, layout.pipeline * layout.virtual_pipeline
    full = -(-layers // chunks)  # rounded up
    missing = full * chunks - layers  # for an even deal

    counts_loss = (missing > 0) & (missing <= 2)
    counts_embedding = missing == 2
    leaves_the_last_some = full * (layout.pipeline - 1) < layers
    shortens_last = (missing > 2) & (layout.virtual_pipeline == 1) & leaves_the_last_some
    lists_chunks = (missing > 2) & np.logical_not(shortens_last)
    derived = Split(
        first=full,
        inner=full,
        last=full - missing * shortens_last,
        before=1 * counts_embedding,
        after=1 * counts_loss,
        counts_embedding=counts_embedding,
        counts_loss=counts_loss,
        sizes_ends=shortens_last,
    )
    if np.any(lists_chunks):
        derived = _where(lists_chunks, _listed(job, layout), derived)
    is_pinned = (layout.first_stage_layers > 0) | (layout.last_stage_layers > 0)
    return _where(is_pinned, _pinned(job, layout), derived) if np.any(is_pinned) else derived


def _where(condition: Any, chosen: Split, other: Split) -> Split:
    """Choose one of two, row by row."""
    fields = Split.__slots__
    return Split(
        **{
            name: np.where(condition, getattr(chosen, name), getattr(other, name))
            for name in fields
        }
    )


def _balanced(job: Job, layout: LayoutLike) -> Split:
    """Deal as DeepSpeed does, which counts embedding and loss as a layer each.

    Where the layers don't divide, every stage counts as the fullest one.

    **Source**: DeepSpeed 0.19.8 runtime/utils.py, partition_balanced; partition method
    `type:transformer|embedding`, as BLOOM used (70 layers on 12 stages).
    """
    share = job.model.layers // layout.pipeline
    rest = job.model.layers - share * layout.pipeline
    is_uneven = 1 * (rest > 0)
    # Of layers and ends, which are two more, the fullest stage has the share rounded up.
    full = share + is_uneven * (1 + (rest == layout.pipeline - 1))
    return Split(first=full, inner=full, last=full, before=is_uneven, after=is_uneven)


def _pinned(job: Job, layout: LayoutLike) -> Split:
    """Deal the sizes that the user gives to the first and the last stage.

    The stages between share the rest.
    """
    first = layout.first_stage_layers
    last = layout.last_stage_layers
    chunks = layout.virtual_pipeline
    others = np.maximum(layout.pipeline - (first > 0) - (last > 0), 1)
    inner = (job.model.layers - first - last) // (others * chunks)
    inner = np.where(layout.pipeline > 1, inner, job.model.layers)

    def of_end(pinned: Any) -> Any:
        return np.where((pinned > 0) & (layout.pipeline > 1), pinned // chunks, inner)

    return Split(first=of_end(first), inner=inner, last=of_end(last), sizes_ends=True)


def end_layers(job: Job) -> float:
    """Cost, in layers, of what the last stage has beside its own: the head, and depths that predict
    further tokens with a head of theirs each.
    """
    head, depths = loss_layers(job.model), job.training.mtp_depths
    return head + depths * (len(job.model.depth_places) + head)


def _listed(job: Job, layout: LayoutLike) -> Split:
    """Deal chunks as equal as can be, the last one of them smaller by the cost of the loss.

    Layers that remain join the last chunk where it is then no larger than another with one more:
    its stage has the fewest micro-batches in flight. Else they are dealt over the stages: to the
    second and those after it first, which hold neither embedding nor head; the first stage, where
    most micro-batches are in flight, comes last.
    **Source** of what is legal: megatron/core/transformer/pipeline_parallel_layer_layout.py,
    validate_layer_layout @ core_v0.16.1.
    """
    layers, chunks = job.model.layers, layout.pipeline * layout.virtual_pipeline
    head, others = end_layers(job), np.maximum(chunks - 1, 1)
    last_chunk = np.maximum(np.rint((layers + head) / chunks - head), 0)
    # Each of the others has a layer at least.
    last_chunk = np.minimum(last_chunk, np.maximum(layers - others, 0)).astype(np.int64)
    share = (layers - last_chunk) // others
    remain = layers - last_chunk - share * others

    fits_in_last = last_chunk + remain + np.rint(head) <= share + 1
    last_chunk = last_chunk + np.where(fits_in_last, remain, 0)
    dealt = np.where(fits_in_last, 0, remain)
    rounds = dealt // layout.pipeline
    return Split(
        first=share,
        inner=share,
        last=share,
        rounds=rounds,
        rest=dealt - rounds * layout.pipeline,
        after=share - last_chunk,
        lists_chunks=True,
    )


def loss_layers(model: Model) -> float:
    """Cost of the head, in layers: by the parameters that a token is multiplied with.

    **Assumes** attention's core is small beside a layer's products.
    """
    return _loss_layers(model.stack, model.vocab * model.hidden)


@lru_cache(maxsize=16)
def _loss_layers(stack: Stack, head: int) -> float:
    whole = over_kinds(
        stack,
        lambda layer: layer.mixer.parameters + layer.feed_forward.active_matrix_parameters,
    )
    return float(head / (whole / len(stack)))


def _has_rest(cut: Split, layout: LayoutLike, stage: Any) -> Any:
    """Tell whether `stage` is one of the `rest` stages with a larger chunk more.

    These begin with the second stage, or with the first where they are all others or more.
    """
    begins_with_first = cut.rest >= layout.pipeline - 1
    from_second = (stage > 0) & (stage <= cut.rest)
    return np.where(begins_with_first, stage < cut.rest, from_second) & (cut.rest > 0)


def _usual_chunk(cut: Split, layout: LayoutLike, stage: Any) -> Any:
    """Layers of a chunk of `stage` that isn't changed by itself."""
    return np.where(
        stage == 0, cut.first, np.where(stage == layout.pipeline - 1, cut.last, cut.inner)
    )


def layers_of(cut: Split, layout: LayoutLike, stage: Any) -> Any:
    """Layers of `stage`, all its chunks together."""
    whole = layout.virtual_pipeline * _usual_chunk(cut, layout, stage)
    whole = whole + cut.rounds + _has_rest(cut, layout, stage)
    return whole - (stage == 0) * cut.before - (stage == layout.pipeline - 1) * cut.after


def waiting_layers(job: Job, layout: LayoutLike) -> Any:
    """Layers for which every stage waits in each turn of the pipeline, by chunks of unequal sizes.

    In a turn each stage runs `pipeline` micro-batches through all its chunks. Interleaved stages
    follow one another a chunk apart, forward and backward. Where all stages change to a row of
    smaller or larger chunks, the later stages still run the row before: for as many chunks as there
    are other stages, all go at the pace of the larger size. What the larger chunk itself takes is
    slack. Where some stages hold less than the slowest, they catch up.

    **Source**: Megatron-LM's schedule (pipeline_parallel/schedules.py,
    forward_backward_pipelining_with_interleaving), run step by step in tests/estimate.
    """
    cut, p = split(job, layout), layout.pipeline
    if not np.any(cut.rounds):
        return 0.0 * p
    # A first stage outside the `rest`, or a last row that only these have larger.
    some_hold_less = (cut.rest < p - 1) | (cut.rounds == layout.virtual_pipeline - 1)
    catch_up = (cut.rest > 0) & some_hold_less
    waits = (cut.rounds > 0) & np.logical_not(catch_up)
    return np.where(waits, np.maximum(p - 2 - cut.inner, 0), 0)


def kinds_of(job: Job, layout: LayoutLike, stage: Any) -> tuple[Any, ...]:
    """Layers of each kind that `stage` holds, in the order of the model's kinds.

    A chunk's layers of a kind are those before its end less those before its start. The largest
    kind gets the layers of the stage that the others leave.
    """
    stack = job.model.averaged
    all_layers = layers_of(split(job, layout), layout, stage)
    largest = stack.kinds.index(stack.largest)
    others = [kind for kind in range(len(stack.kinds)) if kind != largest]
    if not others:
        return (all_layers,)

    # Many layouts are cut alike.
    cuts = distinct(layout, _CUT_BY, *np.atleast_2d(stage))
    stage_of_cut = stage
    if cuts.places is not None:
        stage_of_cut = np.stack(cuts.columns) if np.ndim(stage) > 1 else cuts.columns[0]
    held = cuts.spread(_held_of_kinds(job, cuts.layout, stage_of_cut, others))

    by_kind = dict(zip(others, held, strict=True))
    rest = all_layers - held.sum(axis=0)
    return tuple(by_kind.get(kind, rest) for kind in range(len(stack.kinds)))


def _held_of_kinds(job: Job, layout: LayoutLike, stage: Any, kinds: Sequence[int]) -> Any:
    """Layers of some kinds in `stage`, along the first axis."""
    stack, cut = job.model.averaged, split(job, layout)
    # Chunks come along a first axis.
    most_chunks = int(np.max(layout.virtual_pipeline, initial=0))
    shape = np.broadcast_shapes(np.shape(stage), np.shape(layout.virtual_pipeline))
    chunk = np.arange(most_chunks).reshape(-1, *(1 for _ in shape))
    start = _start(cut, layout, stage, chunk)
    end = np.maximum(start + _layers_of_chunk(cut, layout, stage, chunk), 0)
    # A layout that a rule refuses may ask for layers that the model doesn't have.
    start, end = (np.minimum(np.maximum(place, 0), len(stack)) for place in (start, end))

    before = np.array([stack.before(kind) for kind in kinds], np.int64)
    of_chunks = before[:, np.maximum(end, start)] - before[:, start]
    return ((chunk < layout.virtual_pipeline) * of_chunks).sum(axis=1)


def chunk_sizes(job: Job, layout: Layout) -> list[int]:
    """Layers of every chunk, in the order of the model."""
    cut = split(job, layout)
    cells = [
        (stage, row) for row in range(layout.virtual_pipeline) for stage in range(layout.pipeline)
    ]
    return [int(_layers_of_chunk(cut, layout, stage, row)) for stage, row in cells]


def divides_chunks(job: Job, layout: LayoutLike) -> Any:
    """Tell where every chunk is a multiple of the layers that are repeated together."""
    p, v, group = layout.pipeline, layout.virtual_pipeline, layout.recompute_group
    is_single = group == 1
    if np.all(is_single):
        return is_single
    cut = split(job, layout)
    last = np.where(p > 1, cut.last, cut.first)
    # Layers left over in the model's two end chunks, and in a usual chunk of each kind of stage.
    of_ends = (cut.first - cut.before) % group + (last - cut.after) % group
    of_others = (v > 1) * (cut.first % group + last % group) + (p > 2) * (cut.inner % group)
    is_uneven = (cut.rounds > 0) | (cut.rest > 0)
    return is_single | (of_ends + of_others == 0) & np.logical_not(is_uneven)


def _start(cut: Split, layout: LayoutLike, stage: Any, row: Any) -> Any:
    """Layers before chunk `row` of `stage`."""
    p = layout.pipeline
    usual_row = cut.first + np.maximum(p - 2, 0) * cut.inner + (p > 1) * cut.last
    usual = row * usual_row + (stage > 0) * (cut.first + (stage - 1) * cut.inner)

    # Larger chunks: all of the first `rounds` rows, and those of the `rest` in the row after them.
    rest_before = np.minimum(np.maximum(stage - (cut.rest < p - 1), 0), cut.rest)
    larger = np.minimum(row, cut.rounds) * p + (row < cut.rounds) * stage
    larger = larger + (row > cut.rounds) * cut.rest + (row == cut.rounds) * rest_before
    return usual + larger - ((row > 0) | (stage > 0)) * cut.before


def _layers_of_chunk(cut: Split, layout: LayoutLike, stage: Any, row: Any) -> Any:
    """Layers of chunk `row` of `stage`."""
    larger = (row < cut.rounds) + (row == cut.rounds) * _has_rest(cut, layout, stage)
    is_first = (row == 0) & (stage == 0)
    is_last = (row == layout.virtual_pipeline - 1) & (stage == layout.pipeline - 1)
    lacks = is_first * cut.before + is_last * cut.after
    return _usual_chunk(cut, layout, stage) + larger - lacks


#: The fields of a layout that decide which layers its stages hold.
_CUT_BY: Final = ("pipeline", "virtual_pipeline", "first_stage_layers", "last_stage_layers")
#: Those that decide what its stages hold.
HELD_BY: Final = (*_CUT_BY, "tensor", "expert", "expert_tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContents:
    """What a stage holds: layers by kind, all its chunks together, and a rank's parameters.

    The parameters are those that a rank has when data parallelism cuts nothing.
    """

    layers: Any  #: those of depths that predict further tokens among them
    kinds: tuple[Any, ...]  #: of these, those of each kind of the model's stack
    shared: Any  #: parameters that data × context replicates
    experts: Any  #: those of routed experts, replicated `expert` times less
    ends: Any  #: of `shared`, those of the embedding, the head and the norm before it
    #: parameters that layers of the stage use and others hold, once for each layer
    again: Any

    def at(self, place: int) -> StageContents:
        """Return one of several stages along the first axis."""
        return StageContents(
            layers=self.layers[place],
            kinds=tuple(count[place] for count in self.kinds),
            shared=self.shared[place],
            experts=self.experts[place],
            ends=self.ends[place],
            again=self.again[place],
        )


def inner_layers(job: Job, layout: LayoutLike) -> Any:
    """Layers of the second stage, which is the fullest inner one.

    Where the second is the last, those of the first.
    """
    return layers_of(split(job, layout), layout, 1 * (layout.pipeline > 2))


def stage_contents(job: Job, layout: LayoutLike, stage: Any) -> StageContents:
    """Layers and parameters of one rank of `stage` (0-based, or several along the first axis).

    **Source**: Megatron-LM theoretical_memory_usage.py:215-267: attention and MLP are cut by
    `tensor`, norms and router replicated, experts cut by `expert * expert_tensor`; the embedding is
    on the first stage, the head on the last (tied: both hold one).
    """
    model, tensor = job.model, layout.tensor
    held = kinds_of(job, layout, stage)
    depths = depths_of(job, layout, stage)
    if job.training.mtp_depths:
        of_depth = _kinds_of_depth(model)
        held = tuple(count + depths * of_depth.get(kind, 0) for kind, count in enumerate(held))
    shared = experts = again = 0.0 * held[0]
    for layer, count in zip(model.averaged.kinds, held, strict=True):
        part = layer.feed_forward
        whole = layer.mixer.rank_parameters(tensor) + layer.norm_parameters
        whole = whole + layer.stream_parameters
        shared = shared + count * (whole + part.rank_parameters(tensor))
        routed = part.experts * part.expert_parameters
        experts = experts + count * (routed / (layout.expert * layout.expert_tensor))
        if layer.borrowed:
            borrowed = layer.borrowed_parameters(tensor)
            without = count - _borrowed_copies(model.averaged, layer, count, held)
            shared = shared - without * borrowed
            again = again + without * borrowed
    first, last = stage == 0, stage == layout.pipeline - 1
    table = vocabulary_rows(job, layout) * (model.embedding_width or model.hidden)
    shares_table = model.tied_embeddings & (layout.pipeline == 1)
    head = np.where(shares_table, 0, table) + model_size.final_parameters(model)
    ends = first * (table + model_size.position_parameters(model)) + last * head
    if job.training.mtp_depths:
        # Depths look tokens up in a table of the last stage's own, also where its head is tied.
        of_depths = depths * (2 * model.hidden**2 / tensor + 3 * model.norm.each * model.hidden)
        alone = np.where(layout.pipeline > 1, table, 0)
        ends = ends + of_depths + (depths > 0) * alone
    return StageContents(
        layers=sum(held),
        kinds=held,
        shared=shared + ends,
        experts=experts,
        ends=ends + 0.0 * shared,
        again=again,
    )


def _borrowed_copies(stack: Stack, layer: Layer, count: Any, held: Sequence[Any]) -> Any:
    """How many of a stage's `count` layers that borrow weights need a copy of them.

    They do where the layers that they borrow from are on another stage.

    **Assumes** that layers use what they borrow by turns (Zamba2).
    """
    holder = stack.kinds.index(replace(layer, borrowed=(), borrowed_norms=0))
    return np.minimum(count, np.maximum(stack.counts[holder] - held[holder], 0))


def depths_of(job: Job, layout: LayoutLike, stage: Any) -> Any:
    """Depths that predict further tokens of `stage`: all are on the last one.

    **Source**: Megatron-LM core_v0.16.1, megatron/core/transformer/multi_token_prediction.py,
    get_mtp_num_layers_to_build; its table: models/gpt/gpt_model.py (`mtp_process`).
    """
    return job.training.mtp_depths * (stage == layout.pipeline - 1)


def _kinds_of_depth(model: Model) -> dict[int, int]:
    """Layers of one depth, by the place of their kinds in the stack that estimates take."""
    order, counts = model.averaged.order, dict[int, int]()
    for place in model.depth_places:
        counts[order[place]] = counts.get(order[place], 0) + 1
    return counts


def expert_replicas(layout: LayoutLike) -> Any:
    """Ranks that hold the same experts: those of a stage over expert × expert_tensor.

    **Source**: Megatron-LM core/parallel_state.py, initialize_model_parallel: the expert ranks are
    cut out of tensor × context × data.
    """
    return layout.data * layout.context * layout.tensor / (layout.expert * layout.expert_tensor)


def vocabulary_rows(job: Job, layout: LayoutLike) -> Any:
    """Rows of the embedding (and of the head) on one rank, padding included."""
    rows = model_size.padded_vocab(
        job.model.vocab, layout.tensor, job.framework.vocabulary_multiple
    )
    return rows / layout.tensor if job.framework.shards_vocabulary else rows


def in_flight(layout: LayoutLike, stage: Any, cut: Split | None = None) -> Any:
    """Micro-batches whose activations `stage` keeps at its peak.

    They are counted in whole stages: chunks over `virtual_pipeline`, or, where chunks of a `cut`
    are unequal, their layers over the stage's. The first `pipeline` chunks are of one row, the next
    `pipeline` of the following row.

    **Source**: 1F1B `min(m, p-i)`; interleaved `min(mv, 2(p-i-1) + (v-1)p + 1)` chunks (Megatron-LM
    pipeline_parallel/schedules.py:957-970). **Symbols**: m micro-batches, p stages, i stage, v
    chunks.
    """
    m, p, v = layout.gradient_accumulation, layout.pipeline, layout.virtual_pipeline
    plain = np.minimum(m, p - stage)
    if np.all(v == 1):
        return plain
    chunks = np.minimum(m * v, 2 * (p - stage - 1) + (v - 1) * p + 1)
    interleaved = chunks / v if cut is None else _layers_in_flight(cut, layout, stage, chunks)
    return np.where(v > 1, interleaved, plain)


def _layers_in_flight(cut: Split, layout: LayoutLike, stage: Any, chunks: Any) -> Any:
    """Layers of the first `chunks` that a stage runs, over all its layers."""
    p, v = layout.pipeline, layout.virtual_pipeline
    turns, rest = chunks // (p * v), chunks % (p * v)

    def of_rows(count: Any) -> Any:
        """How many of the chunks belong to the first `count` rows."""
        return p * count * turns + np.minimum(rest, p * count)

    layers = _usual_chunk(cut, layout, stage) * chunks + of_rows(cut.rounds)
    layers = layers + _has_rest(cut, layout, stage) * (
        of_rows(cut.rounds + 1) - of_rows(cut.rounds)
    )
    layers = layers - (stage == 0) * cut.before * of_rows(1)
    final = (stage == p - 1) * cut.after
    layers = layers - final * (of_rows(v) - of_rows(v - 1))
    return layers / np.maximum(layers_of(cut, layout, stage), 1)


def overlapped_layers(layout: LayoutLike, held: StageContents) -> Any:
    """Growth of `in_flight` where experts' all-to-alls overlap: the forward pass is a layer ahead.

    Layer by layer a micro-batch goes forward while another goes backward, so that one layer is held
    twice. Interleaved, the micro-batch that is warmed up beyond the others is the one that would go
    forward before the first backward pass. **Source**: NVIDIA/Megatron-LM core_v0.16.1,
    megatron/core/models/common/model_chunk_schedule_plan.py:473-487, and
    pipeline_parallel/schedules.py:775-779. **Assumes** that a layer's activations are freed at its
    end.
    """
    if not np.any(layout.expert_overlap):
        return 0.0
    return layout.expert_overlap * (layout.gradient_accumulation > 1) / np.maximum(held.layers, 1)
