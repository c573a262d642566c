"""Identities of programs that start Megatron with words of their own."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....rules.violations import listed, megatron_lm, nearest
from ....submission.launches import Launch
from ...launching.front_ends import FrontEnd, has_option, nodes_of, number_of, per_node_of
from ..run import EXPERT, PIPELINE, TENSOR, MegatronRun
from .rule import at, lm_arguments

_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_SLIME: Final = "THUDM/slime slime/utils/dp_schedule.py"
_front_ends: Final = lm_arguments.where(lambda run: run.front_end is not None)


def _parts(run: MegatronRun) -> tuple[FrontEnd, Launch] | None:
    """The front end of a run and its launch."""
    if run.front_end is None or run.launch is None:
        return None
    return run.front_end, run.launch


@_front_ends.rule("FRONT001", ERROR, "init", megatron_lm("core/parallel_state.py:871-884"))
def experts_divide_the_ranks(run: MegatronRun) -> Violations:
    """Expert tensor, expert and pipeline ranks divide the GPUs, whatever model is trained.
    Prevents: RuntimeError: world_size is not divisible by ..., on every rank
    Fix: use sizes whose product divides the GPUs
    """
    parts = _parts(run)
    expert = run.integer(EXPERT)
    if parts is None or expert is None or expert < 2:
        return
    nodes, each = nodes_of(parts[1]), per_node_of(parts[1])
    tensor = run.setting(_EXPERT_TENSOR, run.setting(TENSOR, 1))
    pipeline = run.setting(PIPELINE, 1)
    if nodes is None or each is None or not tensor or not pipeline:
        return

    gpus, cut = nodes.value * each.value, tensor * expert * pipeline
    # Megatron's own rules say it where the model is known to have experts.
    if gpus % cut and not run.has("--num-experts"):
        product = f"expert tensor {tensor} × {EXPERT} {expert} × pipeline {pipeline} = {cut}"
        message = f"{product} does not divide {gpus} GPUs"
        passing = [size for size in range(1, gpus + 1) if not gpus % (tensor * pipeline * size)]
        hint = f"use {cut} GPUs"
        if passing:
            hint = f"use {EXPERT} {listed(nearest(passing, expert))}"
        yield at(run, EXPERT, message, hint)


@_front_ends.rule("FRONT002", WARNING, "training", f"{_SLIME}:99-139 @ 624b824a")
def samples_fill_the_steps(run: MegatronRun) -> Violations:
    """The samples of an iteration are a whole number of optimizer steps.
    Prevents: No error: the samples that are left are not trained on. With fewer than one step has:
    an AssertionError after the first rollout.
    Fix: make prompts × samples a multiple of the global batch
    """
    parts = _parts(run)
    if parts is None or not parts[0].rollout:
        return
    names, launch = parts[0].rollout, parts[1]
    prompts, samples = number_of(launch, names["prompts"]), number_of(launch, names["samples"])
    batch = number_of(launch, names["batch"])
    if prompts is None or batch is None or has_option(launch, names["steps"]):
        return
    if samples is None and has_option(launch, names["samples"]):
        return

    each = samples.value if samples else 1
    made = prompts.value * each
    if made % batch.value:
        counted = f"{names['prompts']} {prompts.value} × {names['samples']} {each} = {made}"
        few = made < batch.value
        result = "fewer than a step has" if few else f"{made % batch.value} are left untrained"
        message = f"{counted} samples for {names['batch']} {batch.value}: {result}"
        severity: Severity | None = ERROR if few else None
        hint = f"use {names['batch']} {made}, or a divisor of it"
        yield Violation(batch.where, message, hint, severity=severity)


@_front_ends.rule("FRONT003", WARNING, "training", f"{_SLIME}:28-31 @ 624b824a")
def longest_sample_fits_the_budget(run: MegatronRun) -> Violations:
    """The tokens that a rank trains on at once hold the longest response.
    Prevents: No error at first: a longer sample makes a micro-batch of its own, and runs out of
    memory in the logits.
    Fix: raise the budget, or cut sequences over more context ranks
    """
    parts = _parts(run)
    if parts is None or not parts[0].budget:
        return
    names, launch = parts[0].budget, parts[1]
    tokens, response = number_of(launch, names["tokens"]), number_of(launch, names["response"])
    ranks = run.setting(names["ranks"], 1)
    counts = has_option(launch, names["where"])
    if not counts or tokens is None or response is None or not ranks:
        return
    if tokens.value * ranks < response.value:
        message = (
            f"{names['tokens']} {tokens.value} × {ranks} context ranks hold less than a response "
            f"of {names['response']} {response.value}"
        )
        needed = -(-response.value // ranks)
        hint = f"use {names['tokens']} {needed} or more, prompts on top"
        yield Violation(tokens.where, message, hint)
