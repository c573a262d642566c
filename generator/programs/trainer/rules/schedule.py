"""TrainingArguments' schedules: when they log, evaluate, save and warm up."""

from __future__ import annotations

from math import isfinite
from typing import Final

from ....findings import ERROR, Severity, Violations
from ....rules.sources import transformers
from ....rules.violations import violation
from ...subjects import training_arguments
from ..training_arguments import TrainingArguments

_CHECKED: Final = transformers("src/transformers/training_args.py (TrainingArguments._validate_args)")
_SCALE: Final = 1_000_000  # transformers compares fractions of the run as whole millionths
_TRIAL: Final = 100  # steps: fewer try whether a program runs, whatever their learning rate


_OLD: Final = "evaluation_strategy"  # up to 4.46


def _strategies(arguments: TrainingArguments) -> tuple[object, object]:
    """When models are saved and when they are evaluated."""
    old = arguments.has(_OLD) and not arguments.has("eval_strategy")
    return arguments.setting("save_strategy"), arguments.value(_OLD) if old else arguments.setting("eval_strategy")


@training_arguments.rule("HF030", ERROR, "init", _CHECKED)
def strategies_match(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end, models are evaluated and saved by the same strategy.

    Prevents: ValueError: --load_best_model_at_end requires the save and eval strategy to match
    Fix: use one strategy for both"""
    save, evaluation = _strategies(arguments)
    known = isinstance(save, str) and isinstance(evaluation, str)
    if known and arguments.is_on("load_best_model_at_end") and save not in ("best", evaluation):
        name = _OLD if arguments.has(_OLD) else "eval_strategy"
        default = "" if arguments.has("save_strategy") else " (the default)"
        message = f"load_best_model_at_end with {name} {evaluation} and save_strategy {save}{default}"
        both = save if save != "no" else evaluation
        yield violation(arguments, "load_best_model_at_end", message, f"set {name} and save_strategy to {both}")


@training_arguments.rule("HF031", ERROR, "init", _CHECKED)
def saves_follow_evaluations(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end by steps, save_steps is a multiple of eval_steps.

    Prevents: ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the
    evaluation steps
    Fix: use a multiple of eval_steps"""
    by_steps = _strategies(arguments) == ("steps", "steps")
    saved, evaluated = _steps(arguments, "save_steps") or 0, _eval_steps(arguments) or 0
    if not by_steps or not arguments.is_on("load_best_model_at_end") or saved <= 0 or evaluated <= 0:
        return
    mixed = (saved < 1) != (evaluated < 1)
    scale = _SCALE if saved < 1 and evaluated < 1 else 1
    if mixed or (saved % evaluated and (saved * scale) % (evaluated * scale)):
        message = f"save_steps {saved:g} is not a multiple of eval_steps {evaluated:g}"
        multiple = evaluated * max(1, round(saved / evaluated))
        hint = f"set save_steps to {multiple:g}" if not mixed else "give both as steps, or both as fractions"
        name = "save_steps" if arguments.has("save_steps") else "load_best_model_at_end"
        yield violation(arguments, name, message, hint)


def _steps(arguments: TrainingArguments, name: str) -> float | None:
    value = arguments.setting(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isfinite(value) else None


def _eval_steps(arguments: TrainingArguments) -> float | None:
    """eval_steps, or logging_steps where there is none, as transformers fills it in."""
    if arguments.has("eval_steps"):
        steps = _steps(arguments, "eval_steps")
        return steps or (None if steps is None else _steps(arguments, "logging_steps"))
    return _steps(arguments, "logging_steps") if arguments.complete else None


@training_arguments.rule("HF032", ERROR, "init", _CHECKED)
def steps_are_integers(arguments: TrainingArguments) -> Violations:
    """logging_steps, eval_steps and save_steps are integers above 1, and not 0 where they are used.

    Prevents: ValueError: --logging_steps must be an integer if bigger than 1, or requires non-zero --logging_steps
    Fix: use an integer, or a fraction below 1"""
    for what, default in (("logging", "steps"), ("eval", "no"), ("save", "steps")):
        strategy, name = f"{what}_strategy", f"{what}_steps"
        value = arguments.number(name)
        if value is None or arguments.value(strategy, None if arguments.has(strategy) else default) != "steps":
            continue
        if value > 1 and value != int(min(value, 1e15)):
            message = f"{name} is {value}: above 1 it must be an integer"
            yield violation(arguments, name, message, f"set {name} to {round(value) if isfinite(value) else 500}")
        elif value == 0 and what == "logging":
            yield violation(arguments, name, "logging_steps is 0", "set logging_steps to 10, or logging_strategy to no")


@training_arguments.rule("HF033", ERROR, "init", _CHECKED)
def plateau_has_evaluations(arguments: TrainingArguments) -> Violations:
    """lr_scheduler_type reduce_lr_on_plateau and greedy go with evaluation.

    Prevents: ValueError: lr_scheduler_type reduce_lr_on_plateau requires an eval strategy
    Fix: set eval_strategy to steps or epoch"""
    kind, (_, evaluation) = arguments.value("lr_scheduler_type"), _strategies(arguments)
    if kind in ("reduce_lr_on_plateau", "greedy") and evaluation == "no":
        message = f"lr_scheduler_type {kind} with eval_strategy no"
        yield violation(arguments, "lr_scheduler_type", message, "set eval_strategy to steps")


@training_arguments.rule("HF034", ERROR, "init", _CHECKED)
def warmup_is_not_negative(arguments: TrainingArguments) -> Violations:
    """warmup_steps is 0 or more, and less than max_steps.

    Prevents: ValueError: Got warmup_steps = -1, Expected value warmup_steps >= 0
    Fix: use 0, a number of steps, or a fraction below 1"""
    warmup, total = arguments.number("warmup_steps"), arguments.integer("max_steps") or 0
    if warmup is not None and warmup < 0:
        message = f"warmup_steps is {warmup:g}; it must be at least 0"
        yield violation(arguments, "warmup_steps", message, "set warmup_steps to 0")
    elif warmup is not None and 0 < total <= warmup:
        message = f"warmup_steps {warmup:g} is all of max_steps {total}: the learning rate never decays"
        hint, severity = f"set warmup_steps to {total // 20}", Severity.NOTE if total < _TRIAL else Severity.WARNING
        yield violation(arguments, "warmup_steps", message, hint, severity=severity)


@training_arguments.rule("HF035", ERROR, "init", _CHECKED)
def prefetching_has_workers(arguments: TrainingArguments) -> Violations:
    """dataloader_prefetch_factor goes with dataloader_num_workers above 0.

    Prevents: ValueError: --dataloader_prefetch_factor can only be set when ... --dataloader_num_workers > 0.
    Fix: set dataloader_num_workers above 0"""
    name = "dataloader_prefetch_factor"
    if arguments.value(name) is not None and arguments.setting("dataloader_num_workers") == 0:
        message = f"{name} without workers (dataloader_num_workers 0)"
        yield violation(arguments, name, message, "set dataloader_num_workers to 4")


@training_arguments.rule("HF036", ERROR, "init", _CHECKED)
def cache_is_emptied_after_steps(arguments: TrainingArguments) -> Violations:
    """torch_empty_cache_steps is an integer above 0.

    Prevents: ValueError: `torch_empty_cache_steps` must be an integer bigger than 0
    Fix: use at least 1"""
    name = "torch_empty_cache_steps"
    value = arguments.number(name)
    if value is not None and (value <= 0 or isinstance(value, float)):
        message = f"{name} is {value}, not an integer of at least 1"
        yield violation(arguments, name, message, "use at least 1, or remove it")


@training_arguments.rule("HF037", ERROR, "init", _CHECKED)
def best_needs_a_metric(arguments: TrainingArguments) -> Violations:
    """save_strategy best goes with a metric and evaluations.

    Prevents: ValueError: `args.metric_for_best_model` must be provided when using 'best' save_strategy
    Fix: set metric_for_best_model"""
    named = arguments.has("metric_for_best_model") or arguments.is_on("load_best_model_at_end")
    if arguments.value("save_strategy") == "best" and arguments.complete and not named:
        message = "save_strategy best without metric_for_best_model"
        yield violation(arguments, "save_strategy", message, "set metric_for_best_model to loss")
