"""Rules on the model's shape in Megatron arguments: widths, heads, positions, and how layers are
divided over pipeline stages and chunks.
"""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Severity, Violations
from ....rules.violations import (
    divisors,
    listed,
    megatron_deepspeed,
    megatron_lm,
    nearest,
    neighbours,
)
from ..run import (
    CHUNKS,
    COUNTED_ENDS,
    FIRST_STAGE,
    HEADS,
    LAST_STAGE,
    LAYERS,
    LAYERS_PER_CHUNK,
    PIPELINE,
    STAGE_LAYOUT,
    TENSOR,
    MegatronRun,
    faults,
)
from .rule import CONFIG, at, divides, excludes, lm_checked, mds_checked, needs

_POSITIONS: Final = "--max-position-embeddings"
_QUERY_GROUPS: Final = "--num-query-groups"
_GROUPED_QUERIES: Final = "--group-query-attention"
_KV_HEADS: Final = "--num-key-value-heads"
_PREDICTING_LAYERS: Final = "--mtp-num-layers"


@lm_checked.rule("MLM007", ERROR, "init", megatron_lm("training/arguments.py:1332"))
def heads_divide_hidden(run: MegatronRun) -> Violations:
    """Without --kv-channels, a head's width is the hidden size over the heads, an integer; tensor
    ranks share heads.
    Prevents: AssertionError
    Fix: change the heads, or give --kv-channels
    """
    hidden, heads = run.size("--hidden-size"), run.heads
    if hidden and heads and hidden % heads and run.lacks("--kv-channels", as_written=True):
        fitting = nearest([count for count in divisors(hidden) if count <= 4 * heads], heads, 3)
        message = f"--hidden-size {hidden} is not a multiple of {HEADS} {heads}"
        yield at(run, HEADS, message, f"use {HEADS} {listed(fitting)}, or give --kv-channels")
    if not run.trains:  # of a training run, the rules on the layout check it
        yield from divides(run, TENSOR, heads, f"{HEADS} {heads}")


@lm_checked.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def positions_reach_the_sequence(run: MegatronRun) -> Violations:
    """--max-position-embeddings is at least the sequence length, whatever the kind of positions.
    Prevents: AssertionError: max_position_embeddings must be greater than or equal to seq_length
    Fix: raise --max-position-embeddings"""
    most = run.size(_POSITIONS)
    for name in ("--seq-length", "--encoder-seq-length", "--decoder-seq-length"):
        tokens = run.size(name)
        if most is not None and tokens is not None and most < tokens:
            message = f"{_POSITIONS} {most} is less than {name} {tokens}"
            yield at(run, _POSITIONS, message, f"use {_POSITIONS} {tokens}")


@mds_checked.rule(
    "MDS011", ERROR, "init", megatron_deepspeed("megatron/arguments.py:299, 311, 446")
)
def shape_is_whole(run: MegatronRun) -> Violations:
    """Heads divide the hidden size, key-value heads divide the heads, and positions reach the
    sequence's end.
    Prevents: AssertionError
    Fix: use the numbers of the model's card
    """
    yield from heads_divide_hidden.check(run)
    yield from positions_reach_the_sequence.check(run)
    yield from divides(run, _KV_HEADS, run.heads, f"{HEADS} {run.heads}", count=3)


@lm_checked.rule(
    "MLM054", ERROR, "silent", megatron_lm("training/arguments.py:2382 (a store_true of its own)")
)
def query_groups_are_asked_for(run: MegatronRun) -> Violations:
    """--num-query-groups and --group-query-attention are given together.
    Prevents: No error: a model with another attention is trained.
    Fix: give --group-query-attention and --num-query-groups together"""
    groups, heads = run.size(_QUERY_GROUPS), run.heads
    are_ignored = run.lacks(_GROUPED_QUERIES) and not run.has("--multi-latent-attention")
    if groups is not None and groups != heads and are_ignored:
        every = f"all {heads}" if heads else "all"
        ignored = f"{_QUERY_GROUPS} {groups} is ignored without {_GROUPED_QUERIES}"
        message = f"{ignored}: {every} heads get their own keys"
        yield at(run, _QUERY_GROUPS, message, f"add {_GROUPED_QUERIES}")
    if run.has(_GROUPED_QUERIES) and run.lacks(_QUERY_GROUPS):
        message = f"{_GROUPED_QUERIES} without {_QUERY_GROUPS} gives 1 group: multi-query attention"
        yield at(
            run, _GROUPED_QUERIES, message, f"add {_QUERY_GROUPS} N", severity=Severity.WARNING
        )


@lm_checked.rule(
    "MLM165", ERROR, "init", megatron_lm("core/transformer/attention.py:1391 @ core_v0.16.1")
)
def query_groups_divide_heads(run: MegatronRun) -> Violations:
    """As many heads share the keys of each query group.
    Prevents: RuntimeError: shape is invalid for input of size, in the first forward pass
    Fix: use query groups that divide the heads
    """
    if run.has(_GROUPED_QUERIES) and run.lacks("--multi-latent-attention"):
        yield from divides(run, _QUERY_GROUPS, run.heads, f"{HEADS} {run.heads}", count=3)


@lm_checked.rule("MLM037", ERROR, "init", megatron_lm("training/arguments.py:1973"))
def latent_attention_has_no_groups(run: MegatronRun) -> Violations:
    """Multi-latent attention and grouped queries exclude each other.
    Prevents: AssertionError: Group query attention is mutually exclusive with multi latent
    attention
    Fix: remove one of the two
    """
    yield from excludes(
        run, "--multi-latent-attention", [_GROUPED_QUERIES], ", which has its own keys"
    )
    yield from needs(run, "--mla-down-proj-fusion", "--multi-latent-attention")


@lm_checked.rule("MLM056", ERROR, "init", megatron_lm("training/arguments.py:1306, 1347"))
@mds_checked.rule("MDS030", ERROR, "init", megatron_deepspeed("megatron/arguments.py:269, 304"))
def layers_and_length_have_one_name(run: MegatronRun) -> Violations:
    """Layers and sequence length are given by one name each, without the encoder's.
    Prevents: AssertionError: cannot have both num-layers and encoder-num-layers specified
    Fix: give --num-layers and --seq-length alone"""
    yield from excludes(run, LAYERS, ["--encoder-num-layers"], ", which means the same")
    yield from excludes(run, "--seq-length", ["--encoder-seq-length"], ", which means the same")


@lm_checked.rule("MLM003", ERROR, "init", megatron_lm("training/arguments.py:997"))
def stages_share_layers(run: MegatronRun) -> Violations:
    """Pipeline stages hold equal numbers of layers, with the ends counted or set apart as given.
    Prevents: AssertionError: Number of layers should be divisible by the pipeline-model-parallel
    size
    Fix: change the stages, count the ends as layers, or set the last stage's layers
    """
    layers, stages = run.shared_layers, run.pipeline
    if layers is None or stages is None or run.has("--decoder-num-layers"):
        return
    if run.beside.cuts_pipeline and run.gpus and run.tensor:
        # Its own parser makes as many stages as the GPUs hold.
        stages = min(stages, max(run.gpus // run.tensor, 1))
    ends = {name: run.size(name) for name in (FIRST_STAGE, LAST_STAGE) if run.has(name)}
    known_ends = [count for count in ends.values() if count is not None]
    if ends and len(known_ends) == len(ends):
        yield from _middle_stages(run, layers, stages, known_ends)
    elif not ends and layers % stages:
        counted_ends = sum(map(run.has, COUNTED_ENDS))
        phrase = " is"
        if counted_ends:
            phrase = f" with {counted_ends} more for the ends counted is {layers},"
        message = f"{LAYERS} {layers - counted_ends}{phrase} not a multiple of {PIPELINE} {stages}"
        hint = f"use {PIPELINE} {listed(nearest(divisors(layers), stages, 4))}"
        most = -(-layers // stages)  # rounded up: the layers of every stage but the last
        last = layers - (stages - 1) * most
        if last > 0:
            hint += f", or add {LAST_STAGE} {last}"
        yield at(run, PIPELINE, message, hint)


def _middle_stages(run: MegatronRun, layers: int, stages: int, ends: list[int]) -> Violations:
    """The stages other than the ends have to share the rest of the layers evenly.

    `ends`: the layers of the first and of the last stage, where given.
    """
    rest, middle = layers - sum(ends), stages - len(ends)
    if middle > 0:
        fits = rest > 0 and rest % middle == 0
    elif middle == 0:
        fits = rest == 0
    else:  # both ends of one stage
        fits = rest >= 0
    if fits:
        return
    ends_shown = " and ".join(
        run.shown(name) for name in (FIRST_STAGE, LAST_STAGE) if run.has(name)
    )
    message = (
        f"{ends_shown} leave {rest} of {layers} layers for the other {middle} stages, which "
        "must share them evenly"
    )
    name = run.first_of(LAST_STAGE, FIRST_STAGE)
    hint = None
    if middle > 0:
        size = run.size(name) or 1
        # Sizes of this end that leave a multiple of the stages between.
        next_size = size + rest % middle
        candidates = (next_size - middle, next_size, next_size + middle)
        layers_to_share = rest + size  # of this end and the stages between
        fitting = [count for count in candidates if 0 < count < layers_to_share]
        hint = f"use {name} {listed(nearest(fitting, size, 3))}" if fitting else None
    yield at(run, name, message, hint)


@lm_checked.rule("MLM014", ERROR, "init", megatron_lm("training/arguments.py:1000-1009"))
def interleaving_has_stages(run: MegatronRun) -> Violations:
    """Interleaving needs a pipeline: more than one stage, more than two where sends don't overlap.
    Prevents: AssertionError: When interleaved schedule is used ...
    Fix: use more stages, or no interleaving"""
    stages, name = run.pipeline, run.first_of(LAYERS_PER_CHUNK, CHUNKS, STAGE_LAYOUT)
    if stages is None or run.chunks in (None, 1):
        return
    least, why = 2, ""
    if run.has("--no-overlap-p2p-communication"):
        least, why = 3, " with --no-overlap-p2p-communication"
    if stages < least:
        message = f"{run.shown(name)}{why} needs {PIPELINE} {least} or more, not {stages}"
        yield at(run, name, message, f"use {PIPELINE} {least}, or remove {name}")


@lm_checked.rule("MLM015", ERROR, "init", megatron_lm("training/arguments.py:968-973"))
def chunks_share_layers(run: MegatronRun) -> Violations:
    """Every chunk of an interleaved stage holds the same number of layers.
    Prevents: AssertionError: number of layers per pipeline stage must be divisible ...
    Fix: use chunks that divide a stage's layers"""
    layers, stages = run.shared_layers, run.pipeline
    if layers is None or stages is None:
        return
    if run.has_any(FIRST_STAGE, LAST_STAGE):
        yield from _uneven_chunks(run, layers, stages)
        return
    each = layers // stages
    if layers % stages != 0:
        return
    for name in (LAYERS_PER_CHUNK, CHUNKS):
        yield from divides(
            run, name, each, f"the {each} layers of a stage ({layers} over {stages} stages)"
        )


def _uneven_chunks(run: MegatronRun, layers: int, stages: int) -> Violations:
    """Chunks of the stages whose layers are given, and of those between them."""
    chunks = run.size(CHUNKS) or 1
    ends = {name: run.size(name) or 0 for name in (FIRST_STAGE, LAST_STAGE) if run.has(name)}
    for name, held in ends.items():
        if held % chunks:
            hint = f"use {name} {listed(neighbours(chunks, held))}"
            yield at(run, name, f"{CHUNKS} {chunks} does not divide {name} {held}", hint)
    rest, middle = layers - sum(ends.values()), stages - len(ends)
    if middle > 0 and rest > 0 and rest % middle == 0:  # else the rule on stages says so
        each = rest // middle
        yield from divides(run, CHUNKS, each, f"the {each} layers of a stage between the ends")


@lm_checked.rule(
    "MLM055", ERROR, "init", megatron_lm(f"training/arguments.py:926, {CONFIG}:2229-2259")
)
def stages_are_cut_one_way(run: MegatronRun) -> Violations:
    """Stages and chunks are cut in one way only.
    Prevents: AssertionError, or ValueError
    Fix: keep one"""
    yield from excludes(run, LAYERS_PER_CHUNK, [CHUNKS, STAGE_LAYOUT])
    yield from excludes(run, CHUNKS, [STAGE_LAYOUT])
    yield from excludes(run, STAGE_LAYOUT, [FIRST_STAGE, LAST_STAGE, *COUNTED_ENDS])
    for end in (FIRST_STAGE, LAST_STAGE):
        yield from excludes(run, end, COUNTED_ENDS)
        yield from excludes(run, LAYERS_PER_CHUNK, [end], f": {CHUNKS} goes with uneven stages")


@lm_checked.rule(
    "MLM080",
    ERROR,
    "init",
    megatron_lm("core/transformer/pipeline_parallel_layer_layout.py:87-160") + " (core_v0.16.1)",
)
def listed_chunks_make_the_model(run: MegatronRun) -> Violations:
    """--pipeline-model-parallel-layout lists every layer of the model once, in chunks that the
    stages share.
    Prevents: AssertionError: Number of decoder layers must match num_layers ...
    Fix: list E, as many t as --num-layers, as many m as --mtp-num-layers, and L
    """
    chunks, stages, name = run.listed_chunks, run.pipeline, STAGE_LAYOUT
    if chunks is None or stages is None:
        return
    if len(chunks) % stages:
        near = listed(neighbours(stages, len(chunks)))
        message = f"{name} has {len(chunks)} chunks, not a multiple of {PIPELINE} {stages}"
        yield at(run, name, message, f"list {near} chunks, separated by |")
    for fault in faults(chunks, stages):
        yield at(run, name, f"{name} {fault}", "list E, every t, every m and L in this order")
    for letter, option, count in (
        ("t", LAYERS, run.layers),
        ("m", _PREDICTING_LAYERS, run.setting(_PREDICTING_LAYERS, 0)),
    ):
        letters = "".join(chunks).count(letter)
        if count is not None and count != letters:
            message = (
                f"{name} has {letter} {letters} times, not {count} times as "
                f"{run.shown(option, 0)} says"
            )
            yield at(run, name, message, f"list {letter} {count} times, or use {option} {letters}")


@mds_checked.rule("MDS010", ERROR, "init", megatron_deepspeed("megatron/arguments.py:173-176"))
def deepspeed_interleaves_long_pipelines(run: MegatronRun) -> Violations:
    """Interleaving needs more than two stages, and chunks that divide the layers.
    Prevents: AssertionError: pipeline-model-parallel size should be greater than 2 with interleaved
    schedule
    Fix: use more stages, or no interleaving
    """
    name, stages, size = LAYERS_PER_CHUNK, run.pipeline, run.size(LAYERS_PER_CHUNK)
    if size is not None and stages is not None and stages <= 2:
        message = f"{name} {size} needs {PIPELINE} 3 or more, not {stages}"
        yield at(run, name, message, f"use {PIPELINE} 4, or remove {name}")
    yield from divides(run, name, run.layers, f"{LAYERS} {run.layers}")
