"""The model's shape in Megatron arguments: widths, heads, positions, and layers over pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...documents.megatron_arguments import MegatronArguments
from ...documents.submission import Submission
from ...findings import Severity
from ..phrases import divisors, listed, nearest
from ..sources import megatron_deepspeed, megatron_lm
from .megatron_rule import LM, MDS, PIPELINE, degree, excludes, megatron_rule, needs, one_of
from .rule import Breach, DocumentRule

_PER_CHUNK: Final = "--num-layers-per-virtual-pipeline-stage"
_CHUNKS: Final = "--num-virtual-stages-per-pipeline-rank"
_LAYOUT: Final = "--pipeline-model-parallel-layout"
_FIRST: Final = "--decoder-first-pipeline-num-layers"
_LAST: Final = "--decoder-last-pipeline-num-layers"
_COUNTED: Final = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
#: What divides layers in ways of its own.
_OTHERWISE: Final = (_LAYOUT, "--hybrid-layer-pattern", "--hybrid-override-pattern", "--standalone-embedding-stage")


def heads_divide_hidden(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Without --kv-channels, a head's width is the hidden size over the heads, a whole number."""
    hidden, heads = arguments.integer("--hidden-size"), arguments.integer("--num-attention-heads")
    if not hidden or not heads or heads < 1 or hidden % heads == 0 or not arguments.lacks("--kv-channels"):
        return
    fitting = nearest([heads_ for heads_ in divisors(hidden) if heads_ <= 4 * heads], heads, 3)
    message = f"--hidden-size {hidden} is not a multiple of --num-attention-heads {heads}"
    hint = f"--num-attention-heads {listed(fitting)}, or --kv-channels"
    yield Breach(where=arguments.locate("--num-attention-heads"), message=message, hint=hint)


def positions_reach_the_sequence(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--max-position-embeddings is at least the sequence length, whatever the kind of positions."""
    most = arguments.integer("--max-position-embeddings")
    for name in ("--seq-length", "--encoder-seq-length", "--decoder-seq-length"):
        tokens = arguments.integer(name)
        if most is not None and tokens is not None and most < tokens:
            message = f"--max-position-embeddings {most} is less than {name} {tokens}"
            hint = f"--max-position-embeddings {tokens}"
            yield Breach(where=arguments.locate("--max-position-embeddings"), message=message, hint=hint)


def shape_is_whole(arguments: MegatronArguments, submission: Submission) -> Iterator[Breach]:
    """Heads divide the hidden size, key-value heads divide the heads, and positions reach the sequence's end."""
    yield from heads_divide_hidden(arguments, submission)
    yield from positions_reach_the_sequence(arguments, submission)
    heads, groups = arguments.integer("--num-attention-heads"), arguments.integer("--num-key-value-heads")
    if heads and groups and groups > 0 and heads > 0 and heads % groups:
        message = f"--num-key-value-heads {groups} does not divide --num-attention-heads {heads}"
        hint = f"--num-key-value-heads {listed(nearest(divisors(heads), groups, 3))}"
        yield Breach(where=arguments.locate("--num-key-value-heads"), message=message, hint=hint)


def query_groups_are_asked_for(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--num-query-groups counts only with --group-query-attention, which needs it: its default is one group."""
    groups, heads = arguments.integer("--num-query-groups"), arguments.integer("--num-attention-heads")
    latent = arguments.has("--multi-latent-attention")
    if groups is not None and groups != heads and not latent and arguments.lacks("--group-query-attention"):
        full = f" all {heads}" if heads else " all"
        message = (
            f"--num-query-groups {groups} is ignored without --group-query-attention:{full} heads get keys of their own"
        )
        yield Breach(where=arguments.locate("--num-query-groups"), message=message, hint="--group-query-attention")
    if arguments.has("--group-query-attention") and arguments.lacks("--num-query-groups"):
        message = "--group-query-attention without --num-query-groups makes 1 group: multi-query attention"
        where = arguments.locate("--group-query-attention")
        yield Breach(where=where, message=message, hint="--num-query-groups N", severity=Severity.WARNING)


def latent_attention_has_no_groups(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Multi-latent attention and grouped queries exclude each other."""
    why = ", which has keys of its own"
    yield from excludes(arguments, "--multi-latent-attention", ["--group-query-attention"], why)
    yield from needs(arguments, "--mla-down-proj-fusion", ["--multi-latent-attention"])


def _layers(arguments: MegatronArguments) -> int | None:
    """The layers that stages share, ends counted where they count; None where they can't be known."""
    layers = arguments.integer(one_of(arguments, "--num-layers", "--encoder-num-layers"))
    if layers is None or layers < 1 or not arguments.complete or any(map(arguments.has, _OTHERWISE)):
        return None
    return layers + sum(map(arguments.has, _COUNTED))


def stages_share_layers(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Pipeline stages hold equal numbers of layers, those that are counted or set apart considered."""
    layers, stages = _layers(arguments), degree(arguments, PIPELINE)
    if layers is None or stages is None or arguments.has("--decoder-num-layers"):
        return
    ends = [arguments.integer(name) for name in (_FIRST, _LAST) if arguments.has(name)]
    if any(count is None or count < 1 for count in ends):
        return
    if ends:
        yield from _middle_stages(arguments, layers, stages, [count or 0 for count in ends])
    elif layers % stages:
        counted = sum(map(arguments.has, _COUNTED))
        plus = f" with {counted} more for the ends counted is {layers}," if counted else ""
        message = f"--num-layers {layers - counted}{plus} not a multiple of {PIPELINE} {stages}"
        message = message if counted else message.replace(" not a", " is not a")
        yield Breach(where=arguments.locate(PIPELINE), message=message, hint=_stages_hint(layers, stages))


def _stages_hint(layers: int, stages: int) -> str:
    hint = f"{PIPELINE} {listed(nearest(divisors(layers), stages, 4))}"
    last = layers - (stages - 1) * -(-layers // stages)
    return f"{hint}, or {_LAST} {last}" if last > 0 else hint


def _middle_stages(arguments: MegatronArguments, layers: int, stages: int, ends: list[int]) -> Iterator[Breach]:
    """The stages between those whose layers are given."""
    rest, middle = layers - sum(ends), stages - len(ends)
    if (rest == 0) == (middle == 0) and rest >= 0 and middle >= 0 and (middle <= 0 or rest % middle == 0):
        return
    given = " and ".join(f"{name} {arguments.value(name)}" for name in (_FIRST, _LAST) if arguments.has(name))
    message = f"{given} leave {rest} of {layers} layers for the other {middle} stages, which must share them evenly"
    name = one_of(arguments, _LAST, _FIRST)
    others = sum(ends) - (arguments.integer(name) or 0)
    fitting = [
        n for n in range(1, layers) if middle > 0 and (layers - others - n) > 0 and (layers - others - n) % middle == 0
    ]
    hint = f"{name} {listed(nearest(fitting, arguments.integer(name) or 1, 3))}" if fitting else None
    yield Breach(where=arguments.locate(name), message=message, hint=hint)


def interleaving_has_stages(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Interleaving needs a pipeline: more than one stage, more than two where sends don't overlap."""
    stages, name = degree(arguments, PIPELINE), one_of(arguments, _PER_CHUNK, _CHUNKS)
    if stages is None or chunks_of(arguments) in (None, 1):
        return
    overlaps = arguments.lacks("--no-overlap-p2p-communication")
    least = 2 if overlaps or not arguments.has("--no-overlap-p2p-communication") else 3
    if stages < least:
        why = "" if overlaps else " with --no-overlap-p2p-communication"
        message = f"{name} {arguments.value(name)}{why} needs {PIPELINE} {least} or more, not {stages}"
        yield Breach(where=arguments.locate(name), message=message, hint=f"{PIPELINE} {least}, or no {name}")


def chunks_of(arguments: MegatronArguments) -> int | None:
    """Model chunks of a stage; None where interleaving isn't asked for, or can't be known."""
    if arguments.has(_CHUNKS):
        return arguments.integer(_CHUNKS)
    layers, stages, each = _layers(arguments), degree(arguments, PIPELINE), arguments.integer(_PER_CHUNK)
    if not each or each < 1 or layers is None or stages is None or layers % stages or layers // stages % each:
        return None
    return layers // stages // each


def chunks_share_layers(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Every chunk of an interleaved stage holds the same number of layers."""
    layers, stages = _layers(arguments), degree(arguments, PIPELINE)
    for name in (_PER_CHUNK, _CHUNKS):
        size = arguments.integer(name)
        if layers is None or stages is None or not size or size < 1 or layers % stages:
            continue
        if arguments.has(_FIRST) or arguments.has(_LAST):
            continue
        per_stage = layers // stages
        if per_stage % size:
            message = f"{name} {size} does not divide the {per_stage} layers of a stage ({layers} over {stages} stages)"
            hint = f"{name} {listed(nearest(divisors(per_stage), size, 4))}"
            yield Breach(where=arguments.locate(name), message=message, hint=hint)


def stages_are_cut_one_way(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Stages and chunks are cut by one of the ways to say how."""
    yield from excludes(arguments, _PER_CHUNK, [_CHUNKS, _LAYOUT])
    yield from excludes(arguments, _CHUNKS, [_LAYOUT])
    yield from excludes(arguments, _LAYOUT, [_FIRST, _LAST, *_COUNTED])
    for first in (_FIRST, _LAST):
        yield from excludes(arguments, first, _COUNTED)
        yield from excludes(arguments, _PER_CHUNK, [first], f": {_CHUNKS} goes with uneven stages")


def deepspeed_interleaves_long_pipelines(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Interleaving needs more than two stages, and chunks that divide the layers."""
    size, stages, layers = arguments.integer(_PER_CHUNK), degree(arguments, PIPELINE), arguments.integer("--num-layers")
    if size is None or size < 1:
        return
    where = arguments.locate(_PER_CHUNK)
    if stages is not None and stages <= 2:
        message = f"{_PER_CHUNK} {size} needs {PIPELINE} 3 or more, not {stages}"
        yield Breach(where=where, message=message, hint=f"{PIPELINE} 4, or no {_PER_CHUNK}")
    if layers and layers > 0 and layers % size:
        message = f"{_PER_CHUNK} {size} does not divide --num-layers {layers}"
        yield Breach(where=where, message=message, hint=f"{_PER_CHUNK} {listed(nearest(divisors(layers), size, 4))}")


def said_by_one_name(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Layers and sequence length are given by one name each, not by the encoder's too."""
    for name in ("--num-layers", "--seq-length"):
        yield from excludes(arguments, name, [name.replace("--", "--encoder-")], ", which means the same")


RULES: Final[tuple[DocumentRule, ...]] = (
    megatron_rule(
        "MLM003",
        LM,
        stages_share_layers,
        source=megatron_lm("training/arguments.py:997"),
        prevents="AssertionError: Number of layers should be divisible by the pipeline-model-parallel size",
        fix="change the stages, count the ends as layers, or set the last stage's layers",
    ),
    megatron_rule(
        "MLM007",
        LM,
        heads_divide_hidden,
        source=megatron_lm("training/arguments.py:1332"),
        prevents="AssertionError",
        fix="change the heads, or give --kv-channels",
    ),
    megatron_rule(
        "MLM009",
        LM,
        positions_reach_the_sequence,
        source=megatron_lm("training/arguments.py:1353"),
        prevents="AssertionError: max_position_embeddings must be greater than or equal to seq_length",
        fix="raise --max-position-embeddings",
    ),
    megatron_rule(
        "MLM014",
        LM,
        interleaving_has_stages,
        source=megatron_lm("training/arguments.py:1000-1009"),
        prevents="AssertionError: When interleaved schedule is used ...",
        fix="more stages, or no interleaving",
    ),
    megatron_rule(
        "MLM015",
        LM,
        chunks_share_layers,
        source=megatron_lm("training/arguments.py:968-973"),
        prevents="AssertionError: number of layers per pipeline stage must be divisible ...",
        fix="chunks that divide a stage's layers",
    ),
    megatron_rule(
        "MLM037",
        LM,
        latent_attention_has_no_groups,
        source=megatron_lm("training/arguments.py:1973"),
        prevents="AssertionError: Group query attention is mutually exclusive with multi latent attention",
        fix="remove one of the two",
    ),
    megatron_rule(
        "MLM054",
        LM,
        query_groups_are_asked_for,
        source=megatron_lm("training/arguments.py:2382 (a store_true of its own)"),
        prevents="a model with another attention is trained, silently",
        fix="give --group-query-attention and --num-query-groups together",
        when="silent",
    ),
    megatron_rule(
        "MLM055",
        LM,
        stages_are_cut_one_way,
        source=megatron_lm("training/arguments.py:926, core/transformer/transformer_config.py:2229-2259"),
        prevents="AssertionError, or ValueError",
        fix="keep one",
    ),
    megatron_rule(
        "MLM056",
        LM,
        said_by_one_name,
        source=megatron_lm("training/arguments.py:1306, 1347"),
        prevents="AssertionError: cannot have both num-layers and encoder-num-layers specified",
        fix="give --num-layers and --seq-length alone",
    ),
    megatron_rule(
        "MDS030",
        MDS,
        said_by_one_name,
        source=megatron_deepspeed("megatron/arguments.py:269, 304"),
        prevents="AssertionError: cannot have both num-layers and encoder-num-layers specified",
        fix="give --num-layers and --seq-length alone",
    ),
    megatron_rule(
        "MDS010",
        MDS,
        deepspeed_interleaves_long_pipelines,
        source=megatron_deepspeed("megatron/arguments.py:173-176"),
        prevents="AssertionError: pipeline-model-parallel size should be greater than 2 with interleaved schedule",
        fix="more stages, or no interleaving",
    ),
    megatron_rule(
        "MDS011",
        MDS,
        shape_is_whole,
        source=megatron_deepspeed("megatron/arguments.py:299, 311, 446"),
        prevents="AssertionError",
        fix="the numbers of the model's card",
    ),
)
