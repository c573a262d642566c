"""The model's shape in Megatron arguments: widths, heads and positions."""

from __future__ import annotations

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import ERROR, Severity, Violation, Violations
from ...numbers import divisors, listed, nearest
from ...sources import megatron_deepspeed, megatron_lm
from .rule import Run, excludes, lm_runs, mds_runs, needs, sized


@lm_runs.rule("MLM007", ERROR, "init", megatron_lm("training/arguments.py:1332"))
def heads_divide_hidden(run: Run) -> Violations:
    """Without --kv-channels, a head's width is the hidden size over the heads, a whole number.

    Prevents: AssertionError
    Fix: change the heads, or give --kv-channels
    """
    arguments = run.arguments
    hidden, heads = sized(arguments, "--hidden-size"), sized(arguments, "--num-attention-heads")
    if not hidden or not heads or heads < 1 or hidden % heads == 0 or not arguments.lacks("--kv-channels"):
        return
    fitting = nearest([heads_ for heads_ in divisors(hidden) if heads_ <= 4 * heads], heads, 3)
    message = f"--hidden-size {hidden} is not a multiple of --num-attention-heads {heads}"
    hint = f"--num-attention-heads {listed(fitting)}, or --kv-channels"
    yield Violation(where=arguments.locate("--num-attention-heads"), message=message, hint=hint)


@lm_runs.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def positions_reach_the_sequence(run: Run) -> Violations:
    """--max-position-embeddings is at least the sequence length, whatever the kind of positions.

    Prevents: AssertionError: max_position_embeddings must be greater than or equal to seq_length
    Fix: raise --max-position-embeddings
    """
    arguments = run.arguments
    most = sized(arguments, "--max-position-embeddings")
    for name in ("--seq-length", "--encoder-seq-length", "--decoder-seq-length"):
        tokens = sized(arguments, name)
        if most is not None and tokens is not None and most < tokens:
            message = f"--max-position-embeddings {most} is less than {name} {tokens}"
            hint = f"--max-position-embeddings {tokens}"
            yield Violation(where=arguments.locate("--max-position-embeddings"), message=message, hint=hint)


@mds_runs.rule("MDS011", ERROR, "init", megatron_deepspeed("megatron/arguments.py:299, 311, 446"))
def shape_is_whole(run: Run) -> Violations:
    """Heads divide the hidden size, key-value heads divide the heads, and positions reach the sequence's end.

    Prevents: AssertionError
    Fix: the numbers of the model's card
    """
    arguments = run.arguments
    yield from heads_divide_hidden.check(run)
    yield from positions_reach_the_sequence.check(run)
    heads, groups = sized(arguments, "--num-attention-heads"), sized(arguments, "--num-key-value-heads")
    if heads and groups and groups > 0 and heads > 0 and heads % groups:
        message = f"--num-key-value-heads {groups} does not divide --num-attention-heads {heads}"
        hint = f"--num-key-value-heads {listed(nearest(divisors(heads), groups, 3))}"
        yield Violation(where=arguments.locate("--num-key-value-heads"), message=message, hint=hint)


@lm_runs.rule("MLM054", ERROR, "silent", megatron_lm("training/arguments.py:2382 (a store_true of its own)"))
def query_groups_are_asked_for(run: Run) -> Violations:
    """--num-query-groups counts only with --group-query-attention, which needs it: its default is one group.

    Prevents: a model with another attention is trained, silently
    Fix: give --group-query-attention and --num-query-groups together
    """
    arguments = run.arguments
    groups, heads = sized(arguments, "--num-query-groups"), sized(arguments, "--num-attention-heads")
    latent = arguments.has("--multi-latent-attention")
    if groups is not None and groups != heads and not latent and arguments.lacks("--group-query-attention"):
        full = f" all {heads}" if heads else " all"
        message = (
            f"--num-query-groups {groups} is ignored without --group-query-attention:{full} heads get keys of their own"
        )
        yield Violation(where=arguments.locate("--num-query-groups"), message=message, hint="--group-query-attention")
    if arguments.has("--group-query-attention") and arguments.lacks("--num-query-groups"):
        message = "--group-query-attention without --num-query-groups makes 1 group: multi-query attention"
        where = arguments.locate("--group-query-attention")
        yield Violation(where=where, message=message, hint="--num-query-groups N", severity=Severity.WARNING)


@lm_runs.rule("MLM037", ERROR, "init", megatron_lm("training/arguments.py:1973"))
def latent_attention_has_no_groups(run: Run) -> Violations:
    """Multi-latent attention and grouped queries exclude each other.

    Prevents: AssertionError: Group query attention is mutually exclusive with multi latent attention
    Fix: remove one of the two
    """
    arguments = run.arguments
    why = ", which has keys of its own"
    yield from excludes(arguments, "--multi-latent-attention", ["--group-query-attention"], why)
    yield from needs(arguments, "--mla-down-proj-fusion", ["--multi-latent-attention"])


def said_by_one_name(arguments: MegatronArguments, _: Submission) -> Violations:
    """Layers and sequence length are given by one name each, not by the encoder's too."""
    for name in ("--num-layers", "--seq-length"):
        yield from excludes(arguments, name, [name.replace("--", "--encoder-")], ", which means the same")


@lm_runs.rule("MLM056", ERROR, "init", megatron_lm("training/arguments.py:1306, 1347"))
def lm_said_by_one_name(run: Run) -> Violations:
    """Layers and sequence length are given by one name each, not by the encoder's too.

    Prevents: AssertionError: cannot have both num-layers and encoder-num-layers specified
    Fix: give --num-layers and --seq-length alone
    """
    return said_by_one_name(run.arguments, run.submission)


@mds_runs.rule("MDS030", ERROR, "init", megatron_deepspeed("megatron/arguments.py:269, 304"))
def mds_said_by_one_name(run: Run) -> Violations:
    """Layers and sequence length are given by one name each, not by the encoder's too.

    Prevents: AssertionError: cannot have both num-layers and encoder-num-layers specified
    Fix: give --num-layers and --seq-length alone
    """
    return said_by_one_name(run.arguments, run.submission)
