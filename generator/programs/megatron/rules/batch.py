"""Batches, their ramp-ups, lengths and schedules in Megatron arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, Severity, Violation, Violations
from ....numerals import read_whole
from ....rules.violations import (
    divisors,
    listed,
    megatron_deepspeed,
    megatron_lm,
    nearest,
    neighbours,
)
from ..options import TOKENIZERS
from ..run import GLOBAL, MICRO, SCHEDULE, MegatronRun
from ..table import NULL_TOKENIZER, OF_FILES
from .rule import at, excludes, lm_runs, mds_runs


class _CountedIn(NamedTuple):
    """The options that count a run in one unit."""

    length: str
    decay: str
    warmup: str


class _RampUp(NamedTuple):
    """A batch that grows by `increment` from `start` to the global batch over `samples`."""

    start: int
    increment: int
    samples: int


_RAMP_UP: Final = "--rampup-batch-size"
_RAMP_UP_DIGITS: Final = 15  #: of its numbers: no run has a quadrillion samples
_EXAMPLE: Final = f"use {_RAMP_UP} 16 8 300000"
_FIRST_WITH_SCHEDULE: Final = (0, 18)  #: core/num_microbatches_calculator.py @ core_v0.18.2
_STEPS: Final = _CountedIn("--train-iters", "--lr-decay-iters", "--lr-warmup-iters")
_SAMPLES: Final = _CountedIn("--train-samples", "--lr-decay-samples", "--lr-warmup-samples")
_WARMUP_SHARE: Final = "--lr-warmup-fraction"
#: What makes a length unnecessary, or gives it in another way.
_LENGTH_OR_NONE_NEEDED: Final = (
    _STEPS.length,
    _SAMPLES.length,
    "--train-tokens",
    "--skip-train",
    "--yaml-cfg",
    "--eval-only",
    "--epochs",
    "--phase-transition-iterations",
)
_GPT2_VOCABULARY: Final = 50257  #: huggingface.co/openai-community/gpt2, config.json


@lm_runs.rule("MLM030", ERROR, "init", megatron_lm("training/arguments.py:1276-1302"))
@mds_runs.rule("MDS013", ERROR, "init", megatron_deepspeed("megatron/arguments.py:241-266"))
def steps_or_samples(run: MegatronRun) -> Violations:
    """A run, its warm-up and its decay are counted in one unit: steps or samples.
    Prevents: AssertionError: expected iteration-based training
    Fix: count in steps alone, or in samples alone"""
    in_steps = run.has(_STEPS.length)
    right, wrong = (_STEPS, _SAMPLES) if in_steps else (_SAMPLES, _STEPS)
    length, warmup = right.length, right.warmup
    if not run.has(length) or run.has("--skip-train") or run.integer(length) == 0:
        return

    for instead, other in zip(right, wrong, strict=True):
        if run.value(other) not in (None, 0):
            message = f"{run.shown(other)} is given with {run.shown(length)}"
            yield at(run, other, message, f"use {instead}, or remove {other}")

    if run.has(_WARMUP_SHARE) and run.value(warmup) not in (None, 0):
        message = f"{run.shown(warmup)} is given with {_WARMUP_SHARE}"
        yield at(run, warmup, message, f"remove {warmup}")

    if in_steps:  # A ramp-up counts samples; newer versions of Megatron-LM ignore it.
        reason = ", which ramps over samples: give --train-samples"
        yield from excludes(run, length, [_RAMP_UP], reason)


@lm_runs.rule("MLM057", ERROR, "init", megatron_lm("training/training.py:2586"))
@mds_runs.rule("MDS031", ERROR, "init", megatron_deepspeed("megatron/training.py:277"))
def length_is_given(run: MegatronRun) -> Violations:
    """A training run has a length: --train-iters or --train-samples.
    Prevents: Exception: either train-iters or train-samples should be provided
    Fix: add --train-iters"""
    trains = run.is_own_program and run.launch is not None
    if trains and run.lacks_all(*_LENGTH_OR_NONE_NEEDED):
        message = "neither --train-iters nor --train-samples is given"
        yield at(run, "", message, "add --train-iters N")


@lm_runs.rule("MLM058", ERROR, "init", megatron_lm("core/optimizer_param_scheduler.py:160"))
@mds_runs.rule(
    "MDS032", ERROR, "init", megatron_deepspeed("megatron/optimizer_param_scheduler.py:30")
)
def warm_up_ends_before_decay(run: MegatronRun) -> Violations:
    """The learning rate's warm-up is shorter than its decay, which by default is as long as the
    run.
    Prevents: AssertionError: lr_warmup_steps < lr_decay_steps
    Fix: shorten the warm-up
    """
    for unit in (_STEPS, _SAMPLES):
        decay = unit.decay if run.has(unit.decay) else unit.length
        decay_end, warmup_end = run.integer(decay), run.integer(unit.warmup)
        if decay_end is None or warmup_end is None or not run.lacks(_WARMUP_SHARE):
            continue
        if 0 < decay_end <= warmup_end:
            message = f"{unit.warmup} {warmup_end} is not less than {decay} {decay_end}"
            hundredth = decay_end // 100
            yield at(run, unit.warmup, message, f"use {unit.warmup} {hundredth}")

    share = run.number(_WARMUP_SHARE)
    if share is not None and not 0 <= share < 1:
        message = f"{_WARMUP_SHARE} {share:g} is not a fraction from 0 to below 1"
        yield at(run, _WARMUP_SHARE, message, f"use {_WARMUP_SHARE} 0.01")


@lm_runs.rule("MLM031", ERROR, "init", megatron_lm("training/arguments.py:1359-1361"))
@mds_runs.rule("MDS016", ERROR, "init", megatron_deepspeed("megatron/arguments.py:319-321"))
def saves_have_intervals(run: MegatronRun) -> Violations:
    """--save comes with --save-interval, and the smallest learning rate is not above the largest.
    Prevents: AssertionError
    Fix: add --save-interval; lower --min-lr"""
    yield from _save_intervals(run)
    lowest, highest = run.number("--min-lr"), run.number("--lr")
    if lowest is not None and highest is not None and lowest > highest:
        message = f"--min-lr {lowest:g} is more than --lr {highest:g}"
        tenth = highest / 10
        yield at(run, "--min-lr", message, f"use --min-lr {tenth:g}")


def _save_intervals(run: MegatronRun) -> Violations:
    """What is wrong with the intervals at which checkpoints are saved and kept."""
    name, retained_name = "--save-interval", "--save-retain-interval"
    interval, retained = run.integer(name), run.integer(retained_name)
    if run.has("--save") and run.lacks(name):
        # The program lies beside the script, and its parser isn't known.
        may_be_older = run.beside.strings and run.beside.judged is None
        message, hint = f"--save is given without {name}", f"add {name} 1000"
        yield at(run, "--save", message, hint, severity=NOTE if may_be_older else None)
    if run.has("--save") and interval is not None and interval < 1 and run.is_lm:
        yield at(run, name, f"{name} {interval} is less than 1", f"use {name} 1000")
    if retained is None or not interval or interval < 0:
        return
    if retained < 1 or retained % interval:
        message = f"{retained_name} {retained} is not a multiple of {name} {interval}"
        multiples = listed(neighbours(interval, max(retained, 1)))
        yield at(run, retained_name, message, f"use {retained_name} {multiples}")


@lm_runs.rule("MLM038", ERROR, "init", megatron_lm("training/arguments.py:715"))
def evaluation_batch_is_whole(run: MegatronRun) -> Violations:
    """The evaluation's global batch is a multiple of micro-batch × replicas.
    Prevents: AssertionError: eval_global_batch_size must be divisible ...
    Fix: use a multiple of micro-batch × replicas"""
    of_all, of_one = "--eval-global-batch-size", "--eval-micro-batch-size"
    batch = run.size(of_all) if run.has(of_all) else run.global_batch
    micro = run.size(of_one) if run.has(of_one) else run.micro_batch
    if not run.has_any(of_all, of_one) or not batch or not micro or not run.replicas:
        return
    unit = micro * run.replicas
    if batch % unit:
        message = (
            f"an evaluation batch of {batch} is not a multiple of micro-batches of "
            f"{micro} × {run.replicas} replicas = {unit}"
        )
        hint = f"use {of_all} {listed(neighbours(unit, batch))}"
        yield at(run, run.first_of(of_all, of_one), message, hint)


@lm_runs.rule("MLM059", ERROR, "init", megatron_lm("training/arguments.py:1391-1398"))
@mds_runs.rule("MDS033", ERROR, "init", megatron_deepspeed("megatron/arguments.py:331-338"))
def decay_style_has_its_ends(run: MegatronRun) -> Violations:
    """A weight decay that grows has a start and an end; a constant one has neither.
    Prevents: AssertionError
    Fix: give both ends, or neither"""
    name = "--weight-decay-incr-style"
    style = run.choice(name, "constant")
    for end in ("--start-weight-decay", "--end-weight-decay"):
        if style == "constant" and run.has(end):
            message = f"{end} is given, but {name} is constant"
            yield at(run, end, message, f"remove {end}, or use {name} linear")
        elif style in ("linear", "cosine") and run.lacks(end):
            yield at(run, name, f"{name} {style} is given without {end}", f"add {end} 0.1")


@lm_runs.rule("MLM060", ERROR, "init", megatron_lm("training/tokenizer/tokenizer.py:20"))
@mds_runs.rule("MDS034", ERROR, "init", megatron_deepspeed("megatron/tokenizer/tokenizer.py:12"))
def tokenizers_have_their_files(run: MegatronRun) -> Violations:
    """A tokenizer comes with the files, or the size, that it is built from.
    Prevents: AssertionError
    Fix: give the tokenizer's files"""
    if run.launch is None:
        return
    kind = str(run.value("--tokenizer-type"))
    if kind == NULL_TOKENIZER:
        needed = {"--vocab-size": str(_GPT2_VOCABULARY)}
    else:
        option_names = (OF_FILES[f"data.tokenizer.{key}"][0] for key in TOKENIZERS.get(kind, ()))
        needed = dict.fromkeys(option_names, "PATH")
    for name, example in needed.items():
        # newer versions take --tokenizer-model for every kind
        if run.lacks_all(name, "--tokenizer-model"):
            message = f"--tokenizer-type {kind} is given without {name}"
            yield at(run, "--tokenizer-type", message, f"add {name} {example}")


@mds_runs.rule("MDS009", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:21-137"))
def ramp_up_is_whole(run: MegatronRun) -> Violations:
    """A batch ramp-up has a start, an increment that divides the rest of the global batch, and a
    number of samples.
    Prevents: AssertionError: expected the following format ...
    Fix: make every batch of the ramp-up whole
    """
    numbers = _numbers(run)
    if numbers is None:
        return
    if len(numbers) != len(_RampUp._fields):
        message = f"{_RAMP_UP} has {len(numbers)} values, not 3: start, increment, samples"
        yield at(run, _RAMP_UP, message, _EXAMPLE)
        return
    ramp_up = _RampUp(*numbers)
    if min(ramp_up) < 1:
        start, increment, samples = ramp_up
        message = (
            f"{_RAMP_UP} {start} {increment} {samples}: "
            "start, increment and samples must be at least 1"
        )
        yield at(run, _RAMP_UP, message, _EXAMPLE)
    elif run.global_batch is not None:
        yield from _ramp_up_to(run.global_batch, ramp_up, run)


def _ramp_up_to(final: int, ramp_up: _RampUp, run: MegatronRun) -> Violations:
    """What keeps a ramp-up from reaching its final batch in whole steps."""
    start, increment, _ = ramp_up
    way = final - start
    if way == 0:
        message = (
            f"{_RAMP_UP} starts at {start}, which is {GLOBAL} already: its steps are divided by 0"
        )
        yield at(run, _RAMP_UP, message, f"use a start below {final}, or remove {_RAMP_UP}")
    elif way < 0:
        message = f"{_RAMP_UP} {start} {increment}: {start} is more than {GLOBAL} {final}"
        yield at(run, _RAMP_UP, message, f"use a start below {final}")
    elif way % increment:
        message = (
            f"{_RAMP_UP} {start} {increment}: "
            f"{final} − {start} = {way} is not a multiple of {increment}"
        )
        fitting = listed(nearest(divisors(way), increment, 3))
        yield at(run, _RAMP_UP, message, f"use an increment of {fitting}")
    else:
        yield from _ramp_up_in_micro_batches(ramp_up, run)


def _ramp_up_in_micro_batches(ramp_up: _RampUp, run: MegatronRun) -> Violations:
    """A start or an increment that the replicas can't share in whole micro-batches."""
    if not run.micro_batch or not run.replicas or run.has("--decrease-batch-size-if-needed"):
        return
    unit = run.micro_batch * run.replicas
    product = f"{MICRO} {run.micro_batch} × {run.replicas} replicas = {unit}"
    for size, name, article in (
        (ramp_up.start, "start", "a"),
        (ramp_up.increment, "increment", "an"),
    ):
        if size % unit:
            message = f"{_RAMP_UP}: the {name} of {size} is not a multiple of {product}"
            hint = f"use {article} {name} of {listed(neighbours(unit, size))}"
            yield at(run, _RAMP_UP, message, hint)


def _numbers(run: MegatronRun) -> list[int] | None:
    """The ramp-up's numbers, however many; None where one can't be known."""
    values = run.value(_RAMP_UP)
    texts = [str(value) for value in values] if isinstance(values, tuple) else [""]
    numbers = [read_whole(text, _RAMP_UP_DIGITS) for text in texts]
    of_words = [number for number in numbers if number is not None]
    return of_words if len(of_words) == len(numbers) else None


@lm_runs.rule(
    "MLM029",
    NOTE,
    "init",
    "NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py:398-433 @ core_v0.16.1; "
    + megatron_lm("core/num_microbatches_calculator.py:102, training/arguments.py:698"),
)
def lm_ramp_up(run: MegatronRun) -> Violations:
    """A batch ramp-up has whole steps; newer versions use --step-batch-size-schedule instead.
    Prevents: AssertionError, or ValueError; newer versions never ramp up the batch
    Fix: use --step-batch-size-schedule; in older versions make every batch of the ramp-up whole"""
    for violation in ramp_up_is_whole.check(run):
        yield replace(violation, severity=Severity.ERROR)
    # A parser beside the script is of another version; a version that the repository names decides.
    is_named = bool(run.release.where)
    may_ignore_it = not is_named or run.release.version >= _FIRST_WITH_SCHEDULE
    if run.has(_RAMP_UP) and may_ignore_it and run.beside.parser is None and not run.fork:
        yield _ignored_ramp_up(run, is_named=is_named)
    if run.has(SCHEDULE) and run.has(GLOBAL):
        message = f"{run.shown(GLOBAL)} is given with {SCHEDULE}, which has the batches"
        yield at(run, GLOBAL, message, f"remove {GLOBAL}", severity=Severity.ERROR)


def _ignored_ramp_up(run: MegatronRun, *, is_named: bool) -> Violation:
    """A ramp-up that newer releases ignore, with the schedule that they read instead.

    `is_named` says that the repository names a release, and that it is one of these.
    """
    schedule, length, numbers = '"0:16 1B:32"', run.size("--seq-length"), _numbers(run)
    if numbers is not None and len(numbers) == len(_RampUp._fields) and run.global_batch and length:
        ramp_up = _RampUp(*numbers)
        tokens = ramp_up.samples * length  # a schedule counts in these
        schedule = f'"0:{ramp_up.start} {tokens}:{run.global_batch}"'
    releases = f"{run.release}, which has" if is_named else "Megatron-LM 0.18 and later, which have"
    message = f"{_RAMP_UP} is ignored by {releases} {SCHEDULE} for it"
    hint = f"use {SCHEDULE} {schedule}, without {GLOBAL}"
    if not is_named:
        hint = f"in those {hint}"
    severity = Severity.WARNING if is_named and run.release.exact else None
    return at(run, _RAMP_UP, message, hint, severity=severity)
