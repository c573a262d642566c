"""TrainingArguments by themselves: names, types, values and schedules that transformers refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

from ....catalog.names import closest, most_like
from ....findings import ERROR, NOTE, WARNING, Severity, Violations
from ....job.records import Job
from ....job.releases import NEWEST
from ....numerals import read_whole
from ....patterns import lazy_pattern
from ....places import NOTHING, is_left_open
from ....rule import Subject
from ....rules.violations import (
    derived,
    listed,
    note_if_to_fill,
    suggest,
    transformers,
    violation,
)
from ....submission.repository import declares_field, program_of
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....submission.world import world_of
from ....text.slips import is_mistyped, is_slip
from ....text.wording import show, whole_number
from ...launching.front_end_copy import copy_has_option
from ...launching.front_ends import FrontEnd, of_library
from ...launching.own_options import lacks_word
from ...launching.settings import settings_of
from ...pins import numbers
from ...python_around import release_for, tells
from ..accelerate import is_digits, number_of_text
from ..training_arguments import (
    FLAGS,
    LENGTHS,
    TrainingArguments,
    begins_argument,
    gone_arguments,
    known_arguments,
    new_arguments,
    not_negative,
)
from .first_checks import checked_since, release_of

#: TrainingArguments, from files and from launch lines.
training_arguments: Final[Subject[TrainingArguments]] = Subject(
    ("training arguments",), lambda submission: submission.of(TrainingArguments)
)

_PARSER: Final = "src/transformers/hf_argparser.py"
_ARGUMENTS: Final = "src/transformers/training_args.py"
_POSITIVE: Final = derived(
    "torch's DataLoader refuses a batch of 0, and steps are a quotient by the accumulation"
)
_RELEASES: Final = f"{transformers(_ARGUMENTS)}; the same file of every minor release from 4.28 on"
#: The newest major release. Where nothing names a release, many users still have the major one
#: before it, so an argument that is gone only since this one is a note.
_NEWEST_MAJOR: Final = (5, 0)
_MOST_NAMES: Final = 200  # that are compared with all arguments; a script of one's own has fewer
_SLIP: Final = 0.9  # how alike a name must be to be a slip; scripts have arguments of their own
_MOST_CHOICES: Final = 12  # in a hint: more fill several lines of a terminal
_LONGEST_NUMBER: Final = 40  # characters of a text that is read as one
_MOST_STEPS: Final = 1e15  # up to here a float tells one whole number from the next
_USUAL_STEPS: Final = 500  # TrainingArguments' own default of logging_steps and save_steps
_EXPONENT_WITHOUT_DOT: Final = lazy_pattern(r"([+-]?\d{1,20})[eE]([+-]?\d{1,4})", re.ASCII)
_TYPES: Final = {"int": (int,), "float": (int, float), "bool": (bool,)}
_TYPES_IN_WORDS: Final = {"int": "an integer", "float": "a number", "bool": "true or false"}
#: Severities of an option without a value, by its type: a number is never a switch, and a flag was
#: one in older releases.
_SEVERITY_WITHOUT_VALUE: Final = {"int": None, "float": None, "bool": NOTE}


@training_arguments.rule("HF023", WARNING, "parse", _RELEASES)
def names_are_current(arguments: TrainingArguments) -> Violations:
    """Every argument is one that transformers still has: eval_strategy, not evaluation_strategy.
    Prevents: TypeError: unexpected keyword argument, or ValueError: Some specified arguments are
    not used by the HfArgumentParser, with a transformers that no longer has it. A note where a
    module of the site brings PyTorch, and maybe an older transformers.
    Fix: use the argument's new name"""
    taken = _taken(arguments, gone_arguments())
    if not taken:
        return
    release = release_of(arguments)
    for name in taken:
        gone, instead = gone_arguments()[name]["release"], gone_arguments()[name]["instead"]
        is_gone = release.version[:2] >= numbers(gone)
        verb = "has no" if is_gone else "has the"
        if not release.is_known:
            verb = "may have no"
        message = f"{release} {verb} argument {name}, which is gone since {gone}"
        is_usual = not release.where and numbers(gone) < _NEWEST_MAJOR
        is_usual &= not _is_of_a_module(arguments)
        severity: Severity | None = NOTE
        if is_gone and (release.planned or is_usual):
            severity = None
        elif is_gone and release.where and release.exact:
            severity = ERROR
        hint = instead if instead.startswith("remove") else f"use {instead}"
        yield violation(arguments, name, message, hint, severity=severity)


@training_arguments.rule("HF054", ERROR, "parse", _RELEASES)
def names_are_of_the_release(arguments: TrainingArguments) -> Violations:
    """Every argument is one that the release of transformers has which the repository names.
    Prevents: ValueError: Some specified arguments are not used by the HfArgumentParser; TypeError:
    unexpected keyword argument
    Fix: use a release that has it, or remove the argument"""
    taken = _taken(arguments, new_arguments())
    if not taken:
        return
    release = release_of(arguments)
    if not release.where:
        return
    for name in taken:
        since = new_arguments()[name]
        if release.version[:2] < numbers(since):
            message = f"{release} has no argument {name}, which is new in {since}"
            severity: Severity | None = NOTE
            if release.planned:
                severity = WARNING
            elif release.exact:
                severity = None
            hint = f"use transformers {since} or later, or remove it"
            yield violation(arguments, name, message, hint, severity=severity)


def _is_of_a_module(arguments: TrainingArguments) -> bool:
    """Whether the script loads a module of the site with PyTorch: `module load pytorch/1.13`."""
    launch = arguments.launch
    return launch is not None and any(
        "torch" in word.raw
        for command in launch.script.commands
        if command.words[0].value in ("module", "ml")
        for word in command.words[1:]
    )


def _taken(arguments: TrainingArguments, names: Collection[str]) -> list[str]:
    """Those of `names` that are given and that transformers' class takes, not the program's."""
    taken = sorted(arguments.names & set(names) - arguments.redefined)
    if arguments.launch is not None:
        return taken
    return [name for name in taken if not declares_field(name, arguments.path)]


@training_arguments.rule("HF024", WARNING, "parse", transformers(f"{_PARSER}:338-356,382-383"))
def names_are_no_slips(arguments: TrainingArguments) -> Violations:
    """An argument that nearly is one of TrainingArguments, or of the front end, is spelled like it.
    Prevents: ValueError: Some keys are not used by the HfArgumentParser; or no error and a default
    instead.
    Fix: correct the argument's name
    """
    yield from slips_of_names(arguments)
    yield from _of_other_commands(arguments)


def slips_of_names(arguments: TrainingArguments) -> Violations:
    """Arguments that nearly are one of TrainingArguments, or of the front end."""
    launch = arguments.launch
    program = program_of(launch)
    front_end = arguments.front_end_row
    if launch is not None and launch.program is not None and front_end is None:
        front_end = of_library(launch.program, launch.arguments)
    names_of_front_end: Collection[str] = ()
    if launch is not None and front_end is not None:
        names_of_front_end = sorted({option[2:].replace("-", "_") for option in front_end.options})
    known = (*known_arguments(), *gone_arguments(), *names_of_front_end)
    for name in sorted(arguments.names.difference(known))[:_MOST_NAMES]:
        # argparse takes the beginning of a name for it
        is_taken = declares_field(name, arguments.path) if launch is None else begins_argument(name)
        if is_taken:
            continue
        if names_of_front_end and front_end is not None and front_end.has_like(f"--{name}"):
            continue
        if _is_of_copy(name, front_end, arguments):
            continue
        near = most_like(name.lower().replace("-", "_"), known, _SLIP)
        program_lacks_it = program is not None and lacks_word(program, name)
        if near and not arguments.has(near) and (program_lacks_it or program is None):
            # A front end whose options are known refuses what is none of them.
            is_refused = program_lacks_it or arguments.refuses(name)
            severity = ERROR if is_slip(name, near) and is_refused else None
            if not is_mistyped(name, near) and _may_be_of_release(front_end, arguments):
                severity = None
            message, hint = f"TrainingArguments has no argument {name}", _meant(near, arguments)
            if front_end is not None and near in names_of_front_end:
                message = f"{front_end.name} has no option --{name}"
            yield violation(arguments, name, message, hint, severity=severity)


def _is_of_copy(name: str, front_end: FrontEnd | None, arguments: TrainingArguments) -> bool:
    """Whether the copy of the front end that the repository carries has an option."""
    return front_end is not None and copy_has_option(arguments.path, front_end, name)


def _may_be_of_release(front_end: FrontEnd | None, arguments: TrainingArguments) -> bool:
    """Whether the repository names another release of the front end than the table's newest."""
    program = front_end.program if front_end is not None else ""
    if not program:
        return False
    release = release_for(program, arguments.path, arguments.launches)
    return bool(release.where) and not release.certain(lambda version: version >= NEWEST[program])


def _meant(name: str, arguments: TrainingArguments) -> str:
    """Ask whether an argument was meant, or say what the release has in its place."""
    gone, release = gone_arguments().get(name), release_of(arguments)
    if gone is None or not release.is_known or release.version[:2] < numbers(gone["release"]):
        return f"did you mean {name}?"
    instead = gone["instead"]
    hint = instead if instead.startswith("remove") else f"use {instead}"
    return f"{hint}: {release} has no {name}"


def _of_other_commands(arguments: TrainingArguments) -> Violations:
    """An option that another command of the front end has, and the one that is started lacks."""
    settings = None if arguments.launch is None else settings_of(arguments.launch)
    if settings is None or not settings.front_end.subcommands:
        return
    for name in sorted(arguments.names.difference(known_arguments(), gone_arguments())):
        others = settings.front_end.of_other_commands(f"--{name}", settings.program)
        if others and not _is_of_copy(name, settings.front_end, arguments):
            started = f"{settings.front_end.name}'s {settings.program}"
            message = f"{started} has no option --{name}: it is one of {listed(others)}"
            yield violation(arguments, name, message, f"remove --{name}", severity=ERROR)


@training_arguments.rule(
    "HF025", ERROR, "parse", transformers(f"{_PARSER}:36-46, {_ARGUMENTS} (__post_init__)")
)
def values_have_their_types(arguments: TrainingArguments) -> Violations:
    """Numbers are numbers, flags true or false, and choices among those that transformers has.
    Prevents: argument --x: invalid int value, or expected one argument; 'x' is not a valid
    IntervalStrategy; text where a number is.
    Fix: use a value of the argument's type
    """
    for name in sorted(arguments.bare.keys() - arguments.redefined):
        severity = _SEVERITY_WITHOUT_VALUE.get(known_arguments()[name]["type"], WARNING)
        if arguments.bare[name]:
            severity = NOTE
        message, hint = f"{name} has no value, but takes one", f"give it one, or remove --{name}"
        yield violation(arguments, name, message, hint, severity=severity)
    for name, value in arguments.values.items():
        entry = known_arguments().get(name)
        if entry is None or value is None or value == entry.get("default"):
            continue
        if entry["type"] == "choice":
            if not isinstance(value, str) or value not in entry["choices"]:
                yield from _wrong_choice(arguments, name, value, entry["choices"])
        elif type(value) not in _TYPES.get(entry["type"], (type(value),)):
            yield from _wrong_type(arguments, name, value, entry["type"])


def _wrong_choice(
    arguments: TrainingArguments, name: str, value: object, choices: Sequence[str]
) -> Violations:
    """A value that is none of the choices of an argument."""
    message = f"{name} is {show(value)}, which transformers doesn't have"
    if isinstance(value, bool) and name.endswith("_strategy"):
        message = f"{name} is {show(value)}: YAML reads no, off, yes and on as false and true"
    near = closest(str(value), choices)
    hint: str | None
    if value is False and "no" in choices:
        hint = "write 'no', in quotes"
    elif near:
        hint = f"did you mean {near}?"
    else:
        hint = suggest("", choices[:_MOST_CHOICES])
    is_to_fill = isinstance(value, str) and is_left_open(value, name)
    # Trainers of other programs have more optimizers.
    severity = NOTE if name == "optim" or is_to_fill else None
    yield violation(arguments, name, message, hint, severity=severity)


def _wrong_type(arguments: TrainingArguments, name: str, value: object, kind: str) -> Violations:
    """A value that is no integer, number or flag, where transformers takes one."""
    in_file = arguments.launch is None
    if name == "include_num_input_tokens_seen":  # whose type is `str | bool`
        return
    if in_file and _may_be_converted(value, arguments.path):
        return
    message, hint = f"{name} is {show(value)}, not {_TYPES_IN_WORDS[kind]}", None
    without_dot = _EXPONENT_WITHOUT_DOT.fullmatch(value) if isinstance(value, str) else None
    if without_dot is not None:
        digits, exponent = without_dot.groups()
        hint = f"write {name}: {digits}.0e{exponent}"
        if in_file:
            message += ": YAML 1.1 reads a number with an exponent only with a dot, as in 1.0e-5"
    elif isinstance(value, str) and len(value) < _LONGEST_NUMBER:
        number = number_of_text(value)
        hint = None if number is None else f"write {name}: {number:g}"
    # Other readers of YAML may take it for a number.
    severity = WARNING if in_file and kind != "int" else None
    if kind in ("int", "float"):
        severity = note_if_to_fill(value, name, severity)
    yield violation(arguments, name, message, hint, severity=severity)


def _may_be_converted(value: object, path: str) -> bool:
    """Tell whether a file's reader may convert a text, as transformers' parser doesn't.

    trl's TrlParser and OmegaConf do. Source: trl 0.24, scripts/utils.py; omegaconf 2.3, _utils.py
    (get_yaml_loader).
    """
    if not isinstance(value, str):
        return False
    is_readable = number_of_text(value) is not None or value.lower() in FLAGS
    is_transformers = tells("transformers' parser", path) and not tells("another parser", path)
    return is_readable and not is_transformers


@training_arguments.rule(
    "HF026", ERROR, "init", transformers(f"{_ARGUMENTS} (TrainingArguments._validate_args)")
)
def one_precision(arguments: TrainingArguments) -> Violations:
    """At most one of fp16 and bf16 is on, in training and in evaluation.
    Prevents: ValueError: At most one of fp16 and bf16 can be True, but not both
    Fix: use bf16 alone"""
    for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
        if arguments.is_on(first) and arguments.is_on(second):
            message = f"{first} and {second} are both on"
            yield violation(arguments, second, message, f"use {second} alone")


@training_arguments.rule(
    "HF005", ERROR, "init", transformers("src/transformers/trainer.py:473-476")
)
def fsdp_or_deepspeed(arguments: TrainingArguments) -> Violations:
    """fsdp and deepspeed are not given together.
    Prevents: ValueError: Using --fsdp xxx together with --deepspeed is not possible.
    Fix: remove one of them"""
    off = (None, "", False)
    # A path that only the shell knows is given and has no value, so the default mustn't be None.
    has_deepspeed = arguments.has("deepspeed") and arguments.value("deepspeed", NOTHING) not in off
    has_fsdp = arguments.value("fsdp") not in (*off, [])
    if has_fsdp and has_deepspeed:
        message = "fsdp and deepspeed are both given"
        yield violation(arguments, "fsdp", message, "remove one of them")


@training_arguments.rule(
    "HF027", NOTE, "silent", transformers("src/transformers/training_args.py (max_steps)")
)
def steps_or_epochs(arguments: TrainingArguments) -> Violations:
    """max_steps and num_train_epochs are not given together: max_steps overrides the epochs.
    Prevents: No error: training ends after max_steps, whatever num_train_epochs is.
    Fix: remove one of the two"""
    steps, epochs = arguments.integer("max_steps") or 0, arguments.number("num_train_epochs")
    if steps > 0 and epochs is not None:
        message = f"max_steps {steps} overrides num_train_epochs {epochs}"
        yield violation(arguments, "num_train_epochs", message, "remove one of the two")


@training_arguments.rule(
    "HF044", ERROR, "init", transformers("src/transformers/integrations/deepspeed.py:75")
)
def deepspeed_is_json(arguments: TrainingArguments) -> Violations:
    """The file that deepspeed names is JSON: the Trainer reads no YAML.
    Prevents: json.decoder.JSONDecodeError, or ValueError: Expected a string path to an existing
    deepspeed config
    Fix: write the config as JSON
    """
    named = arguments.value("deepspeed")
    if isinstance(named, str) and named.endswith((".yaml", ".yml")):
        message = f"deepspeed names {show(named)}; the Trainer reads JSON alone"
        hint = f"write it as {named.rpartition('.')[0]}.json"
        yield violation(arguments, "deepspeed", message, hint)


@training_arguments.rule("HF028", ERROR, "init", _POSITIVE)
def batches_have_a_sequence(arguments: TrainingArguments) -> Violations:
    """per_device_train_batch_size and gradient_accumulation_steps are at least 1.
    Prevents: ValueError: batch_size should be a positive integer value, or ZeroDivisionError.
    Fix: use at least 1"""
    for name in (
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "gradient_accumulation_steps",
    ):
        value = arguments.integer(name)
        if value is not None and value < 1:
            message = f"{name} is {value}; it must be at least 1"
            yield violation(arguments, name, message, f"set {name} to 1")


_CHECKED: Final = transformers(
    "src/transformers/training_args.py (TrainingArguments._validate_args)"
)
_TRIAL: Final = 100  # steps: fewer try whether a program runs, whatever their learning rate
#: The first releases that compare evaluations with saves and refuse logging_steps 0, and that
#: refuse a negative warm-up.
#: Source: src/transformers/training_args.py @ 4.8.2, 4.9.0, 4.41.0 and 4.42.4
_COMPARES_STRATEGIES: Final = (4, 9)
_REFUSES_NEGATIVE_WARMUP: Final = (4, 42)
_OLD_NAME: Final = "evaluation_strategy"  # of eval_strategy, up to 4.46
_FRACTIONS_SCALE: Final = 1_000_000  # transformers compares fractions as whole millionths


class _Strategies(NamedTuple):
    """When models are saved, and when they are evaluated: `steps`, `epoch`, `best` or `no`."""

    save: object
    evaluation: object


def _strategies(arguments: TrainingArguments) -> _Strategies:
    """The strategies of arguments, by the older name of one of them too."""
    if arguments.has(_OLD_NAME) and not arguments.has("eval_strategy"):
        evaluation: object = arguments.value(_OLD_NAME)
    else:
        evaluation = arguments.setting("eval_strategy")
    return _Strategies(arguments.setting("save_strategy"), evaluation)


@training_arguments.rule("HF030", ERROR, "init", _CHECKED)
def strategies_match(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end, models are evaluated and saved by the same strategy.
    Prevents: ValueError: --load_best_model_at_end requires the save and eval strategy to match
    Fix: use one strategy for both"""
    save, evaluation = _strategies(arguments)
    if not isinstance(save, str) or not isinstance(evaluation, str):
        return
    if arguments.is_on("load_best_model_at_end") and save not in ("best", evaluation):
        name = _OLD_NAME if arguments.has(_OLD_NAME) else "eval_strategy"
        default = "" if arguments.has("save_strategy") else " (the default)"
        message = (
            f"load_best_model_at_end with {name} {evaluation} and save_strategy {save}{default}"
        )
        both = save if save != "no" else evaluation
        hint = f"set {name} and save_strategy to {both}"
        refused = violation(arguments, "load_best_model_at_end", message, hint)
        yield from checked_since(_COMPARES_STRATEGIES, arguments, [refused])


@training_arguments.rule("HF031", ERROR, "init", _CHECKED)
def saves_follow_evaluations(arguments: TrainingArguments) -> Violations:
    """With load_best_model_at_end by steps, save_steps is a multiple of eval_steps.
    Prevents: ValueError: --load_best_model_at_end requires the saving steps to be a round multiple
    of the evaluation steps
    Fix: use a multiple of eval_steps
    """
    by_steps = _strategies(arguments) == _Strategies(save="steps", evaluation="steps")
    if not by_steps or not arguments.is_on("load_best_model_at_end"):
        return
    saved = not_negative(arguments.setting("save_steps"))
    evaluated = not_negative(arguments.setting("eval_steps"))
    if evaluated == 0 or arguments.lacks("eval_steps"):
        evaluated = not_negative(arguments.setting("logging_steps"))
    if not saved or not evaluated:
        return

    # From 1 on they are steps, below 1 fractions of the run.
    if (saved < 1) != (evaluated < 1):
        hint = "give both as steps, or both as fractions"
    else:
        scale = _FRACTIONS_SCALE if saved < 1 else 1
        if saved % evaluated == 0 or (saved * scale) % (evaluated * scale) == 0:
            return
        multiple = evaluated * max(1, round(saved / evaluated))
        hint = f"set save_steps to {multiple:g}"
    message = f"save_steps {saved:g} is not a multiple of eval_steps {evaluated:g}"
    name = "save_steps" if arguments.has("save_steps") else "load_best_model_at_end"
    refused = violation(arguments, name, message, hint)
    yield from checked_since(_COMPARES_STRATEGIES, arguments, [refused])


@training_arguments.rule("HF032", ERROR, "init", _CHECKED)
def steps_are_integers(arguments: TrainingArguments) -> Violations:
    """logging_steps, eval_steps and save_steps are integers above 1, and not 0 where they are used.
    Prevents: ValueError: --logging_steps must be an integer if bigger than 1, or requires non-zero
    --logging_steps
    Fix: use an integer, or a fraction below 1
    """
    for what, default in (("logging", "steps"), ("eval", "no"), ("save", "steps")):
        strategy, name = f"{what}_strategy", f"{what}_steps"
        value = arguments.number(name)
        # One that is given with a value that isn't known is not the default.
        counts = arguments.value(strategy, None if arguments.has(strategy) else default)
        if value is None or counts != "steps":
            continue
        if value > 1 and value != int(min(value, _MOST_STEPS)):
            message = f"{name} is {value}: above 1 it must be an integer"
            nearest = round(value) if isfinite(value) else _USUAL_STEPS
            yield violation(arguments, name, message, f"set {name} to {nearest}")
        elif value == 0 and what == "logging":
            hint = "set logging_steps to 10, or logging_strategy to no"
            refused = violation(arguments, name, "logging_steps is 0", hint)
            yield from checked_since(_COMPARES_STRATEGIES, arguments, [refused])


@training_arguments.rule("HF033", ERROR, "init", _CHECKED)
def plateau_has_evaluations(arguments: TrainingArguments) -> Violations:
    """lr_scheduler_type reduce_lr_on_plateau and greedy go with evaluation.
    Prevents: ValueError: lr_scheduler_type reduce_lr_on_plateau requires an eval strategy
    Fix: set eval_strategy to steps or epoch"""
    kind = arguments.value("lr_scheduler_type")
    is_by_results = kind in ("reduce_lr_on_plateau", "greedy")
    if is_by_results and _strategies(arguments).evaluation == "no":
        message = f"lr_scheduler_type {kind} with eval_strategy no"
        yield violation(arguments, "lr_scheduler_type", message, "set eval_strategy to steps")


@training_arguments.rule("HF034", ERROR, "init", _CHECKED)
def warmup_is_not_negative(arguments: TrainingArguments) -> Violations:
    """warmup_steps is 0 or more, and less than max_steps.
    Prevents: ValueError: Got warmup_steps = -1, Expected value warmup_steps >= 0
    Fix: use 0, a number of steps, or a fraction below 1"""
    warmup, total = arguments.number("warmup_steps"), arguments.integer("max_steps") or 0
    if warmup is None:
        return
    if warmup < 0:
        message = f"warmup_steps is {warmup:g}; it must be at least 0"
        refused = violation(arguments, "warmup_steps", message, "set warmup_steps to 0")
        yield from checked_since(_REFUSES_NEGATIVE_WARMUP, arguments, [refused])
    elif 0 < total <= warmup:
        message = (
            f"warmup_steps {warmup:g} is all of max_steps {total}: the learning rate never decays"
        )
        hint = f"set warmup_steps to {total // 20}"
        severity = Severity.NOTE if total < _TRIAL else Severity.WARNING
        yield violation(arguments, "warmup_steps", message, hint, severity=severity)


@training_arguments.rule("HF035", ERROR, "init", _CHECKED)
def prefetching_has_workers(arguments: TrainingArguments) -> Violations:
    """dataloader_prefetch_factor goes with dataloader_num_workers above 0.
    Prevents: ValueError: --dataloader_prefetch_factor can only be set when ...
    --dataloader_num_workers > 0.
    Fix: set dataloader_num_workers above 0
    """
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
    Prevents: ValueError: `args.metric_for_best_model` must be provided when using 'best'
    save_strategy
    Fix: set metric_for_best_model
    """
    takes_loss = arguments.is_on("load_best_model_at_end")  # where no metric is given
    has_metric = takes_loss or not arguments.lacks("metric_for_best_model")
    if arguments.value("save_strategy") == "best" and not has_metric:
        message = "save_strategy best without metric_for_best_model"
        yield violation(arguments, "save_strategy", message, "set metric_for_best_model to loss")


_PLANNED: Final = derived("the launched job is the planned one only if both are the same")


class Planned(NamedTuple):
    """TrainingArguments with the job that they are for."""

    arguments: TrainingArguments
    job: Job
    replicas: int | None


@subject("training arguments", "job spec")
def planned(submission: Submission) -> Iterator[Planned]:
    """TrainingArguments of a submission with a job."""
    job = submission.job
    if job is None:
        return
    for arguments in submission.of(TrainingArguments):
        yield Planned(arguments, job, world_of(submission).replicas)


@planned.rule("HF040", ERROR, "silent", _PLANNED)
def batch_is_the_jobs(planned: Planned) -> Violations:
    """per_device_train_batch_size × gradient_accumulation_steps × the replicas is the job's
    global_batch.
    Prevents: No error: another batch than planned, so another learning curve and another number of
    steps.
    Fix: set gradient_accumulation_steps so that the product is the job's global_batch
    """
    arguments, replicas = planned.arguments, planned.replicas
    batch = arguments.batch
    if batch is None or replicas is None:
        return
    total, wanted = batch.sequences * replicas, planned.job.training.global_batch
    if total != wanted and total > 0:
        message = (
            f"{batch.text} × {replicas} replicas = {total}, but the job's global_batch is {wanted}"
        )
        accumulation, rest = divmod(wanted, batch.micro * replicas)
        hint = f"set global_batch to {total}"
        if rest == 0:
            hint = f"set gradient_accumulation_steps to {accumulation}"
        severity = None if batch.written else Severity.WARNING
        yield violation(arguments, batch.name, message, hint, severity=severity)


@planned.rule("HF041", ERROR, "silent", _PLANNED)
def precision_is_the_jobs(planned: Planned) -> Violations:
    """fp16 and bf16 are on and off as the job's precision requires.
    Prevents: No error: training runs in another number format than planned.
    Fix: set the job's precision in the arguments"""
    arguments, wanted = planned.arguments, planned.job.training.precision
    fp16, bf16 = arguments.stated("fp16"), arguments.stated("bf16")
    if fp16 is None or bf16 is None or wanted not in ("fp16", "bf16", "fp32"):
        return
    switched_on = [name for name, flag in (("fp16", fp16), ("bf16", bf16)) if flag.value is True]
    if not (fp16.written or bf16.written) or len(switched_on) == 2:
        return
    stated = switched_on[0] if switched_on else "fp32"
    if stated != wanted:
        off = "bf16" if bf16.written else "fp16"  # the switch to point at where both are off
        name = off if stated == "fp32" else stated
        hint = f"set {stated} to false" if wanted == "fp32" else f"set {wanted} to true"
        message = f"the arguments train in {stated}, the job in {wanted}"
        yield violation(arguments, name, message, hint)


@planned.rule("HF029", WARNING, "silent", _PLANNED)
def sequence_is_the_jobs(planned: Planned) -> Violations:
    """The sequence length that a script is given is the job's.
    Prevents: No error: another sequence length than planned, so another memory need and speed.
    Fix: set the job's sequence_length"""
    wanted = planned.job.training.sequence_length
    for name in LENGTHS:
        value = planned.arguments.value(name)
        length = read_whole(value) if is_digits(value) else whole_number(value)
        if length is not None and length != wanted:
            message = f"{name} is {length}, but the job's sequence_length is {wanted}"
            yield violation(planned.arguments, name, message, f"set {name} to {wanted}")
