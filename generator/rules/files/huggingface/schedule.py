"""TrainingArguments' schedules: when they log, evaluate, save and warm up."""

from __future__ import annotations

from typing import Final

from ....documents.training_arguments import TrainingArguments
from ....findings import ERROR, Severity, Violation, Violations
from ...sources import transformers
from ..subjects import training_arguments
from .match import stated

_CHECKED: Final = transformers("src/transformers/training_args.py (TrainingArguments._validate_args)")

_SCALE: Final = 1_000_000  # transformers compares fractions of the run as whole millionths


def _value(arguments: TrainingArguments, name: str) -> object:
    """A written value, else the default, else None."""
    said = stated(arguments, name)
    return said.value if said is not None else None


def _steps(arguments: TrainingArguments, name: str) -> float | None:
    value = _value(arguments, name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _eval_steps(arguments: TrainingArguments) -> float | None:
    """eval_steps, or logging_steps where there is none, as transformers fills it in."""
    if arguments.given("eval_steps"):
        steps = _steps(arguments, "eval_steps")
        return steps or (None if steps is None else _steps(arguments, "logging_steps"))
    return _steps(arguments, "logging_steps") if arguments.complete else None


@training_arguments.rule("HF030", ERROR, "init", _CHECKED)
def strategies_match(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end, models are evaluated and saved by one strategy.

    Prevents: ValueError: --load_best_model_at_end requires the save and eval strategy to match
    Fix: one strategy for both
    """
    save, evaluation = _value(arguments, "save_strategy"), _value(arguments, "eval_strategy")
    if arguments.given("evaluation_strategy") or not (isinstance(save, str) and isinstance(evaluation, str)):
        return  # the old name: told elsewhere
    if arguments.value("load_best_model_at_end") is True and save != "best" and save != evaluation:
        message = f"load_best_model_at_end with eval_strategy {evaluation} and save_strategy {save}"
        where = arguments.locate("load_best_model_at_end")
        wanted = save if save != "no" else evaluation
        yield Violation(where=where, message=message, hint=f"eval_strategy {wanted} and save_strategy {wanted}")


@training_arguments.rule("HF031", ERROR, "init", _CHECKED)
def saves_follow_evaluations(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end by steps, save_steps is a multiple of eval_steps.

    Prevents: ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the
    evaluation steps
    Fix: a multiple of eval_steps
    """
    save, evaluation = _value(arguments, "save_strategy"), _value(arguments, "eval_strategy")
    if arguments.value("load_best_model_at_end") is not True or not save == evaluation == "steps":
        return
    saved, evaluated = _steps(arguments, "save_steps"), _eval_steps(arguments)
    if not saved or not evaluated or saved <= 0 or evaluated <= 0:
        return
    mixed = (saved < 1) != (evaluated < 1)
    scale = _SCALE if saved < 1 and evaluated < 1 else 1
    if mixed or (saved % evaluated and (saved * scale) % (evaluated * scale)):
        message = f"save_steps {saved:g} is no multiple of eval_steps {evaluated:g}"
        where = arguments.locate("save_steps" if arguments.given("save_steps") else "load_best_model_at_end")
        times = max(1, round(saved / evaluated))
        hint = f"save_steps {evaluated * times:g}" if not mixed else "both as steps, or both as fractions"
        yield Violation(where=where, message=message, hint=hint)


@training_arguments.rule("HF032", ERROR, "init", _CHECKED)
def steps_are_whole(arguments: TrainingArguments) -> Violations:
    """logging_steps, eval_steps and save_steps are whole above 1, and not 0 where they are used.

    Prevents: ValueError: --logging_steps must be an integer if bigger than 1, or requires non-zero --logging_steps
    Fix: a whole number, or a fraction below 1
    """
    for what, default in (("logging", "steps"), ("eval", "no"), ("save", "steps")):
        strategy = arguments.value(f"{what}_strategy", default if not arguments.given(f"{what}_strategy") else None)
        value = arguments.value(f"{what}_steps")
        if strategy != "steps" or not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        where = arguments.locate(f"{what}_steps")
        if value > 1 and value != int(min(value, 1e15)):
            message = f"{what}_steps is {value}: above 1 it is a whole number"
            yield Violation(where=where, message=message, hint=f"{what}_steps {round(value)}")
        elif value == 0 and what == "logging":
            yield Violation(where=where, message="logging_steps is 0", hint="logging_steps 10, or logging_strategy no")


@training_arguments.rule("HF033", ERROR, "init", _CHECKED)
def plateau_has_evaluations(arguments: TrainingArguments) -> Violations:
    """lr_scheduler_type reduce_lr_on_plateau and greedy go with evaluation.

    Prevents: ValueError: lr_scheduler_type reduce_lr_on_plateau requires an eval strategy
    Fix: eval_strategy steps or epoch
    """
    kind, strategy = arguments.value("lr_scheduler_type"), _value(arguments, "eval_strategy")
    if kind in ("reduce_lr_on_plateau", "greedy") and strategy == "no" and not arguments.given("evaluation_strategy"):
        message = f"lr_scheduler_type {kind} with eval_strategy no"
        yield Violation(where=arguments.locate("lr_scheduler_type"), message=message, hint="eval_strategy steps")


@training_arguments.rule("HF034", ERROR, "init", _CHECKED)
def warmup_is_not_negative(arguments: TrainingArguments) -> Violations:
    """warmup_steps is 0 or more, and less than max_steps.

    Prevents: ValueError: Got warmup_steps = -1, Expected value warmup_steps >= 0
    Fix: 0, a number of steps, or a fraction below 1
    """
    warmup, total = arguments.value("warmup_steps"), arguments.value("max_steps")
    if not isinstance(warmup, (int, float)) or isinstance(warmup, bool):
        return
    where = arguments.locate("warmup_steps")
    if warmup < 0:
        yield Violation(where=where, message=f"warmup_steps is {warmup:g}", hint="warmup_steps 0")
    elif isinstance(total, int) and not isinstance(total, bool) and 0 < total <= warmup:
        message = f"warmup_steps {warmup:g} is all of max_steps {total}: the learning rate never comes down"
        yield Violation(where=where, message=message, hint=f"warmup_steps {total // 20}", severity=Severity.WARNING)


@training_arguments.rule("HF035", ERROR, "init", _CHECKED)
def prefetching_has_workers(arguments: TrainingArguments) -> Violations:
    """dataloader_prefetch_factor goes with dataloader_num_workers above 0.

    Prevents: ValueError: --dataloader_prefetch_factor can only be set when ... --dataloader_num_workers > 0.
    Fix: dataloader_num_workers above 0
    """
    if arguments.value("dataloader_prefetch_factor") is not None and _value(arguments, "dataloader_num_workers") == 0:
        where = arguments.locate("dataloader_prefetch_factor")
        message = "dataloader_prefetch_factor without workers (dataloader_num_workers 0)"
        yield Violation(where=where, message=message, hint="dataloader_num_workers 4")


@training_arguments.rule("HF036", ERROR, "init", _CHECKED)
def cache_is_emptied_after_steps(arguments: TrainingArguments) -> Violations:
    """torch_empty_cache_steps is a whole number above 0.

    Prevents: ValueError: `torch_empty_cache_steps` must be an integer bigger than 0
    Fix: at least 1
    """
    value = arguments.value("torch_empty_cache_steps")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and (value <= 0 or isinstance(value, float)):
        where = arguments.locate("torch_empty_cache_steps")
        yield Violation(where=where, message=f"torch_empty_cache_steps is {value}", hint="at least 1, or leave it out")


@training_arguments.rule("HF037", ERROR, "init", _CHECKED)
def best_needs_a_metric(arguments: TrainingArguments) -> Violations:
    """save_strategy best goes with a metric and evaluations.

    Prevents: ValueError: `args.metric_for_best_model` must be provided when using 'best' save_strategy
    Fix: metric_for_best_model
    """
    if arguments.value("save_strategy") != "best" or not arguments.complete:
        return
    if not arguments.given("metric_for_best_model") and arguments.value("load_best_model_at_end") is not True:
        message = "save_strategy best without metric_for_best_model"
        yield Violation(where=arguments.locate("save_strategy"), message=message, hint="metric_for_best_model loss")


_READS: Final = ("training arguments",)
