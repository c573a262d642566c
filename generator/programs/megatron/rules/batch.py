"""Batches, their ramp-ups, lengths and schedules in Megatron arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....findings import ERROR, NOTE, Severity, Violations
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

_RAMP_UP: Final = "--rampup-batch-size"
_FIRST_WITH_SCHEDULE: Final = (0, 18)  #: core/num_microbatches_calculator.py @ core_v0.18.2
_EXAMPLE: Final = f"use {_RAMP_UP} 16 8 300000"
_STEPS: Final = ("--train-iters", "--lr-decay-iters", "--lr-warmup-iters")
_SAMPLES: Final = ("--train-samples", "--lr-decay-samples", "--lr-warmup-samples")
_WARMUP_SHARE: Final = "--lr-warmup-fraction"


@lm_runs.rule("MLM030", ERROR, "init", megatron_lm("training/arguments.py:1276-1302"))
@mds_runs.rule("MDS013", ERROR, "init", megatron_deepspeed("megatron/arguments.py:241-266"))
def steps_or_samples(run: MegatronRun) -> Violations:
    """A run, its warm-up and its decay are counted in one unit: steps or samples.
    Prevents: AssertionError: expected iteration-based training
    Fix: count in steps alone, or in samples alone"""
    steps = run.has(_STEPS[0])
    own, others = (_STEPS, _SAMPLES) if steps else (_SAMPLES, _STEPS)
    first, warmup = own[0], own[2]
    if not run.has(first) or run.has("--skip-train") or run.integer(first) == 0:
        return
    for instead, other in zip(own, others, strict=True):
        if run.value(other) not in (None, 0):
            message = f"{run.shown(other)} is given with {run.shown(first)}"
            yield at(run, other, message, f"use {instead}, or remove {other}")
    if run.has(_WARMUP_SHARE) and run.value(warmup) not in (None, 0):
        yield at(
            run, warmup, f"{run.shown(warmup)} is given with {_WARMUP_SHARE}", f"remove {warmup}"
        )
    if steps:  # A ramp-up counts samples; newer versions of Megatron-LM ignore it.
        yield from excludes(
            run, first, [_RAMP_UP], ", which ramps over samples: give --train-samples"
        )


@lm_runs.rule("MLM057", ERROR, "init", megatron_lm("training/training.py:2586"))
@mds_runs.rule("MDS031", ERROR, "init", megatron_deepspeed("megatron/training.py:277"))
def length_is_given(run: MegatronRun) -> Violations:
    """A training run has a length: --train-iters or --train-samples.
    Prevents: Exception: either train-iters or train-samples should be provided
    Fix: add --train-iters"""
    others = (
        _STEPS[0],
        _SAMPLES[0],
        "--train-tokens",
        "--skip-train",
        "--yaml-cfg",
        "--eval-only",
        "--epochs",
    )
    trains = run.is_own_program and run.launch is not None
    if trains and run.lacks_all(*others) and not run.has("--phase-transition-iterations"):
        yield at(
            run, "", "neither --train-iters nor --train-samples is given", "add --train-iters N"
        )


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
    for total, decay, warmup in (_STEPS, _SAMPLES):
        name = decay if run.has(decay) else total
        steps, warm = run.integer(name), run.integer(warmup)
        if steps and steps > 0 and warm is not None and warm >= steps and run.lacks(_WARMUP_SHARE):
            yield at(
                run,
                warmup,
                f"{warmup} {warm} is not less than {name} {steps}",
                f"use {warmup} {steps // 100}",
            )
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
    name, kept = "--save-interval", "--save-retain-interval"
    interval, keep = run.integer(name), run.integer(kept)
    if run.has("--save") and run.lacks(name):
        # The program lies beside the script, and its parser isn't known.
        older = run.beside.strings and run.beside.judged is None
        severity = NOTE if older else None
        yield at(
            run, "--save", f"--save is given without {name}", f"add {name} 1000", severity=severity
        )
    if run.has("--save") and interval is not None and interval < 1 and run.is_lm:
        yield at(run, name, f"{name} {interval} is less than 1", f"use {name} 1000")
    if keep is not None and interval and interval > 0 and (keep < 1 or keep % interval):
        hint = f"use {kept} {listed(neighbours(interval, max(keep, 1)))}"
        yield at(run, kept, f"{kept} {keep} is not a multiple of {name} {interval}", hint)
    least, most = run.number("--min-lr"), run.number("--lr")
    if least is not None and most is not None and least > most:
        yield at(
            run,
            "--min-lr",
            f"--min-lr {least:g} is more than --lr {most:g}",
            f"use --min-lr {most / 10:g}",
        )


@lm_runs.rule("MLM038", ERROR, "init", megatron_lm("training/arguments.py:715"))
def evaluation_batch_is_whole(run: MegatronRun) -> Violations:
    """The evaluation's global batch is a multiple of micro-batch × replicas.
    Prevents: AssertionError: eval_global_batch_size must be divisible ...
    Fix: use a multiple of micro-batch × replicas"""
    whole, part = "--eval-global-batch-size", "--eval-micro-batch-size"
    batch = run.size(whole) if run.has(whole) else run.global_batch
    micro = run.size(part) if run.has(part) else run.micro_batch
    if not run.has_any(whole, part) or not batch or not micro or not run.replicas:
        return
    unit = micro * run.replicas
    if batch % unit:
        message = (
            f"an evaluation batch of {batch} is not a multiple of micro-batches of "
            f"{micro} × {run.replicas}"
        )
        hint = f"use {whole} {listed(neighbours(unit, batch))}"
        yield at(run, run.first_of(whole, part), f"{message} replicas = {unit}", hint)


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
            yield at(
                run,
                end,
                f"{end} is given, but {name} is constant",
                f"remove {end}, or use {name} linear",
            )
        elif style in ("linear", "cosine") and run.lacks(end):
            yield at(run, name, f"{name} {style} is given without {end}", f"add {end} 0.1")


@lm_runs.rule("MLM060", ERROR, "init", megatron_lm("training/tokenizer/tokenizer.py:20"))
@mds_runs.rule("MDS034", ERROR, "init", megatron_deepspeed("megatron/tokenizer/tokenizer.py:12"))
def tokenizers_have_their_files(run: MegatronRun) -> Violations:
    """A tokenizer comes with the files, or the size, that it is built from.
    Prevents: AssertionError
    Fix: give the tokenizer's files"""
    kind = str(run.value("--tokenizer-type"))
    names = [OF_FILES[f"data.tokenizer.{key}"][0] for key in TOKENIZERS.get(kind, ())]
    if run.launch is None:
        return
    for name in ["--vocab-size"] if kind == NULL_TOKENIZER else names:
        # newer versions take --tokenizer-model for every kind
        if run.lacks_all(name, "--tokenizer-model"):
            hint = f"add {name} {'50257' if name == '--vocab-size' else 'PATH'}"
            yield at(
                run, "--tokenizer-type", f"--tokenizer-type {kind} is given without {name}", hint
            )


@mds_runs.rule("MDS009", ERROR, "init", megatron_deepspeed("megatron/microbatches.py:21-137"))
def ramp_up_is_whole(run: MegatronRun) -> Violations:
    """A batch ramp-up has a start, an increment that divides the rest of the global batch, and a
    number of samples.
    Prevents: AssertionError: expected the following format ...
    Fix: make every batch of the ramp-up whole
    """
    numbers, final = _numbers(run), run.global_batch
    if numbers is None:
        return
    if len(numbers) != 3:
        yield at(
            run,
            _RAMP_UP,
            f"{_RAMP_UP} has {len(numbers)} values, not 3: start, increment, samples",
            _EXAMPLE,
        )
        return
    start, step, samples = numbers
    if min(numbers) < 1:
        message = (
            f"{_RAMP_UP} {start} {step} {samples}: start, increment and samples must be at least 1"
        )
        yield at(run, _RAMP_UP, message, _EXAMPLE)
    elif final == start:
        message = (
            f"{_RAMP_UP} starts at {start}, which is {GLOBAL} already: its steps are divided by 0"
        )
        yield at(run, _RAMP_UP, message, f"use a start below {final}, or remove {_RAMP_UP}")
    elif final is not None and final < start:
        message = f"{_RAMP_UP} {start} {step}: {start} is more than {GLOBAL} {final}"
        yield at(run, _RAMP_UP, message, f"use a start below {final}")
    elif final is not None and (way := final - start) % step:
        message = (
            f"{_RAMP_UP} {start} {step}: {final} − {start} = {way} is not a multiple of {step}"
        )
        yield at(
            run, _RAMP_UP, message, f"use an increment of {listed(nearest(divisors(way), step, 3))}"
        )
    elif final is not None:
        if not run.micro_batch or not run.replicas or run.has("--decrease-batch-size-if-needed"):
            return
        unit = run.micro_batch * run.replicas
        product = f"{MICRO} {run.micro_batch} × {run.replicas} replicas = {unit}"
        for value, what in ((start, "start"), (step, "increment")):
            if value % unit:
                message = f"{_RAMP_UP}: the {what} of {value} is not a multiple of {product}"
                article = "a" if what == "start" else "an"
                yield at(
                    run,
                    _RAMP_UP,
                    message,
                    f"use {article} {what} of {listed(neighbours(unit, value))}",
                )


def _numbers(run: MegatronRun) -> list[int] | None:
    """The ramp-up's numbers; None where they can't be known."""
    values = run.value(_RAMP_UP)
    texts = [str(value) for value in values] if isinstance(values, tuple) else [""]
    numbers = [number for text in texts if (number := read_whole(text, 15)) is not None]
    return numbers if len(numbers) == len(texts) else None


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
    named = bool(run.release.where)
    ignored = run.release.version >= _FIRST_WITH_SCHEDULE
    judged = run.beside.parser is None and not run.fork and (ignored or not named)
    if run.has(_RAMP_UP) and judged:
        numbers, tokens, schedule = _numbers(run), run.size("--seq-length"), '"0:16 1B:32"'
        # a schedule counts in tokens
        if numbers is not None and len(numbers) == 3 and run.global_batch and tokens:
            schedule = f'"0:{numbers[0]} {numbers[2] * tokens}:{run.global_batch}"'
        ignoring = (
            f"{run.release}, which has" if named else "Megatron-LM 0.18 and later, which have"
        )
        message = f"{_RAMP_UP} is ignored by {ignoring} {SCHEDULE} for it"
        hint = f"use {SCHEDULE} {schedule}, without {GLOBAL}"
        severity = Severity.WARNING if named and run.release.exact else None
        yield at(run, _RAMP_UP, message, hint if named else f"in those {hint}", severity=severity)
    if run.has(SCHEDULE) and run.has(GLOBAL):
        message = f"{run.shown(GLOBAL)} is given with {SCHEDULE}, which has the batches"
        yield at(run, GLOBAL, message, f"remove {GLOBAL}", severity=Severity.ERROR)
