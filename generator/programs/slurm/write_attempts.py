"""Runs that are longer than a job: how they go on at the time limit, and what counts their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...estimate.saving import save_s
from ...job.needs import argument_values
from ...search.plan import Plan
from ..arguments import gives, training_steps
from ..program import Program

_USUAL_EXIT_OPTION: Final = "--exit-signal-handler"  # Megatron's, which other scripts have taken over
_LEAVES_EARLY: Final = ("--exit-duration-in-mins", "--exit-interval")  # Megatron's, which save and end with status 0
_STEPS: Final = ("--train-iters", "--max_steps")  # of Megatron, of the Trainer
_NO_STEPS: Final = ("--train-samples", "--train-tokens")  # of the Megatrons
_SECONDS_TO_STOP: Final = 30  # what scontrol requeue and the epilogue need before the time limit
#: Slurm may send a signal up to a minute early. Source: sbatch(1), --signal.
_MOST_EARLY_S: Final = 60
_TIMES_ESTIMATED: Final = 3  # what a step and a checkpoint may take, in their estimates: storage is shared
_ATTEMPTS: Final = 3  # in a row without a newer checkpoint: as many nodes don't fail at once, a wrong file does


def tracked(plan: Plan, way: str) -> bool:
    """Whether the script counts attempts and knows what is saved."""
    return way != "none" and plan.job.output.checkpoints is not None


def signal_s(plan: Plan, options: Mapping[str, Any], way: str) -> int:
    """How long before the time limit the job is told; 0: not at all."""
    if "signal_seconds" in options or way == "none":
        return int(options.get("signal_seconds", 0))
    saving_s = _TIMES_ESTIMATED * (float(plan.step_time.total_s) + float(save_s(plan.job, plan.layout)))
    needed = _SECONDS_TO_STOP + _MOST_EARLY_S + saving_s
    limit_s = plan.job.launch.time_limit_s
    return min(60 * -int(-needed // 60), 65535 if limit_s is None else max(1, limit_s // 4))


def grace_s(told_s: int) -> int:
    """How long a job that was told waits for its workers before it queues again."""
    return max(told_s - _SECONDS_TO_STOP, told_s // 2)


def saves_on_term(plan: Plan, program: Program) -> bool:
    """Whether the script is asked to save and exit when it gets TERM."""
    asked = {*program.arguments, *plan.job.launch.arguments}
    return (plan.job.framework.exit_option or _USUAL_EXIT_OPTION) in asked


def last_step(plan: Plan, program: Program) -> int:
    """The step that the run ends with: what the program is told, else the job's duration; 0 if that can't be known.

    Sequences and tokens are no steps: where Megatron counts those, the batch may grow.
    """
    words = [word for word in program.arguments if isinstance(word, str)]
    told = [values for option in _STEPS if (values := argument_values(words, option))]
    if told:
        return int(told[0][0]) if told[0][0].isdecimal() else 0
    return 0 if gives(words, *_NO_STEPS) else training_steps(plan.job.training) or 0


def leaves_early(plan: Plan, program: Program) -> bool:
    """Whether the program ends with status 0 before its last step: at a time of its own, or when it gets TERM."""
    return saves_on_term(plan, program) or any(map(program.arguments.__contains__, _LEAVES_EARLY))


def values(plan: Plan, program: Program, way: str, options: Mapping[str, Any]) -> dict[str, object]:
    """What the templates of long runs need."""
    form = plan.job.framework.checkpoints
    return {
        "way": way,
        "tracked": tracked(plan, way),
        "last_step": last_step(plan, program),
        "leaves_early": leaves_early(plan, program),
        "attempts": options.get("attempts", _ATTEMPTS),
        "tracker": form.tracker,
        "folder": form.folder,
        "names_folder": form.names_folder,
    }
