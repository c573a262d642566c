"""The model's shape in Megatron arguments: widths, heads and positions."""

from __future__ import annotations

from typing import Final

from ....documents.megatron_run import HEADS, LAYERS, MegatronRun
from ....findings import ERROR, Severity, Violations
from ...numbers import divisors, listed, nearest
from ...sources import megatron_deepspeed, megatron_lm
from .rule import at, excludes, lm_runs, mds_runs, needs

_POSITIONS: Final = "--max-position-embeddings"
_GROUPS: Final = "--num-query-groups"
_GROUPED: Final = "--group-query-attention"
_KV_HEADS: Final = "--num-key-value-heads"


@lm_runs.rule("MLM007", ERROR, "init", megatron_lm("training/arguments.py:1332"))
def heads_divide_hidden(run: MegatronRun) -> Violations:
    """Without --kv-channels, a head's width is the hidden size over the heads, an integer.

    Prevents: AssertionError
    Fix: change the heads, or give --kv-channels
    """
    hidden, heads = run.size("--hidden-size"), run.heads
    if hidden and heads and hidden % heads and run.lacks("--kv-channels"):
        fitting = nearest([count for count in divisors(hidden) if count <= 4 * heads], heads, 3)
        message = f"--hidden-size {hidden} is not a multiple of {HEADS} {heads}"
        yield at(run, HEADS, message, f"use {HEADS} {listed(fitting)}, or give --kv-channels")


@lm_runs.rule("MLM009", ERROR, "init", megatron_lm("training/arguments.py:1353"))
def positions_reach_the_sequence(run: MegatronRun) -> Violations:
    """--max-position-embeddings is at least the sequence length, whatever the kind of positions.

    Prevents: AssertionError: max_position_embeddings must be greater than or equal to seq_length
    Fix: raise --max-position-embeddings
    """
    most = run.size(_POSITIONS)
    for name in ("--seq-length", "--encoder-seq-length", "--decoder-seq-length"):
        tokens = run.size(name)
        if most is not None and tokens is not None and most < tokens:
            yield at(run, _POSITIONS, f"{_POSITIONS} {most} is less than {name} {tokens}", f"use {_POSITIONS} {tokens}")


@mds_runs.rule("MDS011", ERROR, "init", megatron_deepspeed("megatron/arguments.py:299, 311, 446"))
def shape_is_whole(run: MegatronRun) -> Violations:
    """Heads divide the hidden size, key-value heads divide the heads, and positions reach the sequence's end.

    Prevents: AssertionError
    Fix: use the numbers of the model's card
    """
    yield from heads_divide_hidden.check(run)
    yield from positions_reach_the_sequence.check(run)
    heads, groups = run.heads, run.size(_KV_HEADS)
    if heads and groups and heads % groups:
        hint = f"use {_KV_HEADS} {listed(nearest(divisors(heads), groups, 3))}"
        yield at(run, _KV_HEADS, f"{_KV_HEADS} {groups} does not divide {HEADS} {heads}", hint)


@lm_runs.rule("MLM054", ERROR, "silent", megatron_lm("training/arguments.py:2382 (a store_true of its own)"))
def query_groups_are_asked_for(run: MegatronRun) -> Violations:
    """--num-query-groups counts only with --group-query-attention, which needs it: its default is one group.

    Prevents: a model with another attention is trained, silently
    Fix: give --group-query-attention and --num-query-groups together
    """
    groups, heads = run.size(_GROUPS), run.heads
    if groups is not None and groups != heads and not run.has("--multi-latent-attention") and run.lacks(_GROUPED):
        every = f"all {heads}" if heads else "all"
        message = f"{_GROUPS} {groups} is ignored without {_GROUPED}: {every} heads get their own keys"
        yield at(run, _GROUPS, message, f"add {_GROUPED}")
    if run.has(_GROUPED) and run.lacks(_GROUPS):
        message = f"{_GROUPED} without {_GROUPS} gives 1 group: multi-query attention"
        yield at(run, _GROUPED, message, f"add {_GROUPS} N", Severity.WARNING)


@lm_runs.rule("MLM037", ERROR, "init", megatron_lm("training/arguments.py:1973"))
def latent_attention_has_no_groups(run: MegatronRun) -> Violations:
    """Multi-latent attention and grouped queries exclude each other.

    Prevents: AssertionError: Group query attention is mutually exclusive with multi latent attention
    Fix: remove one of the two
    """
    yield from excludes(run, "--multi-latent-attention", [_GROUPED], ", which has its own keys")
    yield from needs(run, "--mla-down-proj-fusion", "--multi-latent-attention")


@lm_runs.rule("MLM056", ERROR, "init", megatron_lm("training/arguments.py:1306, 1347"))
@mds_runs.rule("MDS030", ERROR, "init", megatron_deepspeed("megatron/arguments.py:269, 304"))
def layers_and_length_have_one_name(run: MegatronRun) -> Violations:
    """Layers and sequence length are given by one name each, not by the encoder's too.

    Prevents: AssertionError: cannot have both num-layers and encoder-num-layers specified
    Fix: give --num-layers and --seq-length alone
    """
    yield from excludes(run, LAYERS, ["--encoder-num-layers"], ", which means the same")
    yield from excludes(run, "--seq-length", ["--encoder-seq-length"], ", which means the same")
