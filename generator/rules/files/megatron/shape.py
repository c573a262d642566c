"""The model's shape in Megatron arguments: widths, heads and positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import Severity
from ...numbers import divisors, listed, nearest
from ...sources import megatron_deepspeed, megatron_lm
from ..rule import Breach, DocumentRule
from .rule import LM, MDS, excludes, megatron_rule, needs, sized


def heads_divide_hidden(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Without --kv-channels, a head's width is the hidden size over the heads, a whole number."""
    hidden, heads = sized(arguments, "--hidden-size"), sized(arguments, "--num-attention-heads")
    if not hidden or not heads or heads < 1 or hidden % heads == 0 or not arguments.lacks("--kv-channels"):
        return
    fitting = nearest([heads_ for heads_ in divisors(hidden) if heads_ <= 4 * heads], heads, 3)
    message = f"--hidden-size {hidden} is not a multiple of --num-attention-heads {heads}"
    hint = f"--num-attention-heads {listed(fitting)}, or --kv-channels"
    yield Breach(where=arguments.locate("--num-attention-heads"), message=message, hint=hint)


def positions_reach_the_sequence(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--max-position-embeddings is at least the sequence length, whatever the kind of positions."""
    most = sized(arguments, "--max-position-embeddings")
    for name in ("--seq-length", "--encoder-seq-length", "--decoder-seq-length"):
        tokens = sized(arguments, name)
        if most is not None and tokens is not None and most < tokens:
            message = f"--max-position-embeddings {most} is less than {name} {tokens}"
            hint = f"--max-position-embeddings {tokens}"
            yield Breach(where=arguments.locate("--max-position-embeddings"), message=message, hint=hint)


def shape_is_whole(arguments: MegatronArguments, submission: Submission) -> Iterator[Breach]:
    """Heads divide the hidden size, key-value heads divide the heads, and positions reach the sequence's end."""
    yield from heads_divide_hidden(arguments, submission)
    yield from positions_reach_the_sequence(arguments, submission)
    heads, groups = sized(arguments, "--num-attention-heads"), sized(arguments, "--num-key-value-heads")
    if heads and groups and groups > 0 and heads > 0 and heads % groups:
        message = f"--num-key-value-heads {groups} does not divide --num-attention-heads {heads}"
        hint = f"--num-key-value-heads {listed(nearest(divisors(heads), groups, 3))}"
        yield Breach(where=arguments.locate("--num-key-value-heads"), message=message, hint=hint)


def query_groups_are_asked_for(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """--num-query-groups counts only with --group-query-attention, which needs it: its default is one group."""
    groups, heads = sized(arguments, "--num-query-groups"), sized(arguments, "--num-attention-heads")
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


def said_by_one_name(arguments: MegatronArguments, _: Submission) -> Iterator[Breach]:
    """Layers and sequence length are given by one name each, not by the encoder's too."""
    for name in ("--num-layers", "--seq-length"):
        yield from excludes(arguments, name, [name.replace("--", "--encoder-")], ", which means the same")


RULES: Final[tuple[DocumentRule, ...]] = (
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
        "MDS011",
        MDS,
        shape_is_whole,
        source=megatron_deepspeed("megatron/arguments.py:299, 311, 446"),
        prevents="AssertionError",
        fix="the numbers of the model's card",
    ),
)
