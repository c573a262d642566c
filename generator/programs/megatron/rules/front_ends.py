"""Rules on front ends that start Megatron by options of their own: ranks of experts, and the shape
of the model.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ....findings import ERROR, Violations
from ....job.named_models import model_called
from ....rules.violations import divisors, listed, megatron_lm, nearest
from ...launching.settings import Settings, settings_of
from ..run import EXPERT, PIPELINE, TENSOR, MegatronRun
from .rule import at, lm_arguments

_COMPARED: Final = (
    "THUDM/slime slime/backends/megatron_utils/arguments.py:97-148 @ 624b824a (_hf_validate_args)"
)
_EXPERT_TENSOR: Final = "--expert-tensor-parallel-size"
_front_ends: Final = lm_arguments.where(lambda run: run.front_end is not None)


class _Ranks(NamedTuple):
    """The GPUs of a run, and the degrees of parallelism of experts, which divide them."""

    gpus: int
    expert_tensor: int
    expert: int
    pipeline: int

    @property
    def product(self) -> int:
        """Of the degrees: the GPUs have to be a multiple of it."""
        return self.expert_tensor * self.expert * self.pipeline


@_front_ends.rule("FRONT001", ERROR, "init", megatron_lm("core/parallel_state.py:871-884"))
def experts_divide_the_ranks(run: MegatronRun) -> Violations:
    """Expert tensor, expert and pipeline ranks divide the GPUs, whatever model is trained.
    Prevents: RuntimeError: world_size is not divisible by ..., on every rank
    Fix: use sizes whose product divides the GPUs
    """
    settings = settings_of(run.launch) if run.launch is not None else None
    # Megatron's own rules say it where the model is known to have experts.
    if settings is None or run.has("--num-experts"):
        return
    setting_names = ("nodes", "per_node", "tensor", "expert_tensor", "pipeline")
    ranks_by_branch = [_ranks(run, variant) for variant in settings.variants(setting_names)]
    known_ranks = [ranks for ranks in ranks_by_branch if ranks is not None]
    some_branch_is_unknown = len(known_ranks) < len(ranks_by_branch)
    some_branch_is_right = any(ranks.gpus % ranks.product == 0 for ranks in known_ranks)
    if some_branch_is_unknown or some_branch_is_right:
        return

    ranks = known_ranks[0]  # of the first branch; in the others it is broken too
    gpus, tensor, expert, pipeline = ranks
    shown = f"expert tensor {tensor} × {EXPERT} {expert} × pipeline {pipeline}"
    message = f"{shown} = {ranks.product} does not divide {gpus} GPUs"
    hint = f"use {ranks.product} GPUs"
    most_expert_ranks, rest = divmod(gpus, tensor * pipeline)
    if most_expert_ranks and not rest:
        hint = f"use {EXPERT} {listed(nearest(divisors(most_expert_ranks), expert))}"
    yield at(run, EXPERT, message, hint)


@_front_ends.rule("FRONT009", ERROR, "init", _COMPARED)
def shape_is_the_checkpoints(run: MegatronRun) -> Violations:
    """The shape that options give is that of the checkpoint, where its name says the model.
    Prevents: AssertionError: hf_validate_args failed, on every rank
    Fix: use the values of the checkpoint's config.json
    """
    settings = settings_of(run.launch) if run.launch is not None else None
    if settings is None or not settings.front_end.compares_shape or run.has("--debug-rollout-only"):
        return
    checkpoint = settings.get("model")
    model = None if checkpoint is None else model_called(checkpoint.text)
    if checkpoint is None or model is None:
        return

    shape = {
        "--hidden-size": model.hidden,
        "--num-attention-heads": model.heads,
        "--num-layers": model.layers,
        "--ffn-hidden-size": model.ffn,
        "--rotary-base": int(model.rotary_base),
    }
    if model.experts:
        del shape["--ffn-hidden-size"]
    for option, right in shape.items():
        number = run.number(option) if run.has(option) else None
        if number is not None and number != right:
            message = f"{option} {number:g}, and {model.name} ({checkpoint}) has {right}"
            yield at(run, option, message, f"write {option} {right}")


def _ranks(run: MegatronRun, settings: Settings) -> _Ranks | None:
    """The ranks of a run under these settings, those of one branch of its script; None where one
    isn't known.
    """

    def degree(short: str, option: str, default: int | None) -> int | None:
        """What the branch sets, else what the run's option says."""
        setting = settings.get(short) if short in settings.instead else None
        return run.setting(option, default) if setting is None else setting.number

    gpus, expert = settings.count("nodes per_node"), run.integer(EXPERT)
    tensor = degree("expert_tensor", _EXPERT_TENSOR, degree("tensor", TENSOR, 1))
    pipeline = degree("pipeline", PIPELINE, 1)
    if gpus is None or expert is None or expert < 2 or not tensor or not pipeline:
        return None
    return _Ranks(gpus.value, tensor, expert, pipeline)
