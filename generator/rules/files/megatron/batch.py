"""Batches, lengths and schedules in Megatron arguments."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violation, Violations
from ...numbers import listed, neighbours
from ...sources import megatron_deepspeed, megatron_lm
from .rule import (
    GLOBAL,
    LM,
    MICRO,
    Run,
    excludes,
    lm_runs,
    mds_runs,
    replicas_of,
    sized,
)

_RAMP_UP: Final = "--rampup-batch-size"
_STEPS: Final = ("--train-iters", "--lr-decay-iters", "--lr-warmup-iters")
_SAMPLES: Final = ("--train-samples", "--lr-decay-samples", "--lr-warmup-samples")


@lm_runs.rule("MLM030", ERROR, "init", megatron_lm("training/arguments.py:1276-1302"))
@mds_runs.rule("MDS013", ERROR, "init", megatron_deepspeed("megatron/arguments.py:241-266"))
def steps_or_samples(run: Run) -> Violations:
    """A run is counted in steps or in samples, its warm-up and decay in the same.

    Prevents: AssertionError: expected iteration-based training
    Fix: count in steps alone, or in samples alone
    """
    arguments = run.arguments
    first = _STEPS[0] if arguments.has(_STEPS[0]) else _SAMPLES[0] if arguments.has(_SAMPLES[0]) else None
    if first is None or arguments.has("--skip-train") or arguments.integer(first) == 0:
        return
    own, others = (_STEPS, _SAMPLES) if first == _STEPS[0] else (_SAMPLES, _STEPS)
    for other in others:
        if arguments.has(other) and arguments.value(other) not in (None, 0):
            message = f"{other} {arguments.value(other)} is given beside {first} {arguments.value(first)}"
            hint = f"{own[others.index(other)]}, or no {other}"
            yield Violation(where=arguments.locate(other), message=message, hint=hint)
    warmup = own[2]
    if arguments.has("--lr-warmup-fraction") and arguments.value(warmup) not in (None, 0):
        message = f"{warmup} {arguments.value(warmup)} is given beside --lr-warmup-fraction"
        yield Violation(where=arguments.locate(warmup), message=message, hint=f"no {warmup}")
    if first == _STEPS[0]:  # newer versions of Megatron-LM ignore the ramp-up
        yield from excludes(arguments, first, [_RAMP_UP], ", which ramps over samples: give --train-samples")


@lm_runs.rule("MLM057", ERROR, "init", megatron_lm("training/training.py:2586"))
@mds_runs.rule("MDS031", ERROR, "init", megatron_deepspeed("megatron/training.py:277"))
def length_is_given(run: Run) -> Violations:
    """A training run says how long it is: --train-iters or --train-samples.

    Prevents: Exception: either train-iters or train-samples should be provided
    Fix: give --train-iters
    """
    arguments = run.arguments
    others = (*_STEPS[:1], *_SAMPLES[:1], "--train-tokens", "--skip-train", "--yaml-cfg", "--eval-only", "--epochs")
    trains = arguments.is_own_program and arguments.launch is not None
    if trains and all(map(arguments.lacks, others)) and not arguments.has("--phase-transition-iterations"):
        message = "neither --train-iters nor --train-samples is given"
        yield Violation(where=arguments.locate(""), message=message, hint="--train-iters N")


@lm_runs.rule("MLM058", ERROR, "init", megatron_lm("core/optimizer_param_scheduler.py:160"))
@mds_runs.rule("MDS032", ERROR, "init", megatron_deepspeed("megatron/optimizer_param_scheduler.py:30"))
def warm_up_ends_before_decay(run: Run) -> Violations:
    """The learning rate's warm-up is shorter than its decay, which by default is as long as the run.

    Prevents: AssertionError: lr_warmup_steps < lr_decay_steps
    Fix: shorten the warm-up
    """
    arguments = run.arguments
    for total, decay, warmup in (_STEPS, _SAMPLES):
        name = decay if arguments.has(decay) else total
        steps, warm = arguments.integer(name), arguments.integer(warmup)
        if steps and steps > 0 and warm is not None and warm >= steps and arguments.lacks("--lr-warmup-fraction"):
            message = f"{warmup} {warm} is not less than {name} {steps}"
            yield Violation(where=arguments.locate(warmup), message=message, hint=f"{warmup} {max(steps // 100, 0)}")
    share = arguments.number("--lr-warmup-fraction")
    if share is not None and not 0 <= share < 1:
        message = f"--lr-warmup-fraction {share:g} is no share of the run below 1"
        yield Violation(
            where=arguments.locate("--lr-warmup-fraction"), message=message, hint="--lr-warmup-fraction 0.01"
        )


@lm_runs.rule("MLM031", ERROR, "init", megatron_lm("training/arguments.py:1359-1361"))
@mds_runs.rule("MDS016", ERROR, "init", megatron_deepspeed("megatron/arguments.py:319-321"))
def saves_have_intervals(run: Run) -> Violations:
    """--save comes with --save-interval, and the smallest learning rate is not above the largest.

    Prevents: AssertionError
    Fix: give --save-interval; lower --min-lr
    """
    arguments = run.arguments
    interval = arguments.integer("--save-interval")
    if arguments.has("--save") and arguments.lacks("--save-interval"):
        message = "--save is given without --save-interval"
        yield Violation(where=arguments.locate("--save"), message=message, hint="--save-interval 1000")
    if arguments.has("--save") and interval is not None and interval < 1 and arguments.flavour == LM:
        message = f"--save-interval {interval} is less than 1"
        yield Violation(where=arguments.locate("--save-interval"), message=message, hint="--save-interval 1000")
    keep = arguments.integer("--save-retain-interval")
    if keep is not None and interval and interval > 0 and (keep < 1 or keep % interval):
        message = f"--save-retain-interval {keep} is no multiple of --save-interval {interval}"
        hint = f"--save-retain-interval {listed(neighbours(interval, max(keep, 1)))}"
        yield Violation(where=arguments.locate("--save-retain-interval"), message=message, hint=hint)
    least, most = arguments.number("--min-lr"), arguments.number("--lr")
    if least is not None and most is not None and least > most:
        message = f"--min-lr {least:g} is more than --lr {most:g}"
        yield Violation(where=arguments.locate("--min-lr"), message=message, hint=f"--min-lr {most / 10:g}")


@lm_runs.rule("MLM038", ERROR, "init", megatron_lm("training/arguments.py:715"))
def evaluation_batch_is_whole(run: Run) -> Violations:
    """The evaluation's global batch is whole micro-batches of all replicas.

    Prevents: AssertionError: eval_global_batch_size must be divisible ...
    Fix: a multiple of micro-batch × replicas
    """
    arguments, submission = run
    names = ("--eval-global-batch-size", "--eval-micro-batch-size")
    if not any(map(arguments.has, names)):
        return
    batch = sized(arguments, names[0] if arguments.has(names[0]) else GLOBAL)
    micro = sized(arguments, names[1] if arguments.has(names[1]) else MICRO)
    replicas = replicas_of(submission, arguments)
    if not batch or not micro or not replicas or micro < 1 or batch % (micro * replicas) == 0:
        return
    unit, name = micro * replicas, names[0] if arguments.has(names[0]) else names[1]
    message = (
        f"an evaluation batch of {batch} is no multiple of micro-batches of {micro} × {replicas} replicas = {unit}"
    )
    yield Violation(where=arguments.locate(name), message=message, hint=f"{names[0]} {listed(neighbours(unit, batch))}")


@lm_runs.rule("MLM059", ERROR, "init", megatron_lm("training/arguments.py:1391-1398"))
@mds_runs.rule("MDS033", ERROR, "init", megatron_deepspeed("megatron/arguments.py:331-338"))
def decay_style_has_its_ends(run: Run) -> Violations:
    """A weight decay that grows has a start and an end; a constant one has neither.

    Prevents: AssertionError
    Fix: give both ends, or neither
    """
    arguments = run.arguments
    ends = ("--start-weight-decay", "--end-weight-decay")
    style = arguments.value(
        "--weight-decay-incr-style", "constant" if arguments.sure("--weight-decay-incr-style") else None
    )
    for end in ends:
        if style == "constant" and arguments.has(end):
            message = f"{end} is given, but --weight-decay-incr-style is constant"
            yield Violation(
                where=arguments.locate(end), message=message, hint=f"no {end}, or --weight-decay-incr-style linear"
            )
        elif style in ("linear", "cosine") and arguments.lacks(end):
            message = f"--weight-decay-incr-style {style} without {end}"
            where = arguments.locate("--weight-decay-incr-style")
            yield Violation(where=where, message=message, hint=f"{end} 0.1")


_TOKENIZERS: Final = {
    "GPT2BPETokenizer": ("--vocab-file", "--merge-file"),
    "BertWordPieceLowerCase": ("--vocab-file",),
    "BertWordPieceCase": ("--vocab-file",),
    "SentencePieceTokenizer": ("--tokenizer-model",),
    "GPTSentencePieceTokenizer": ("--tokenizer-model",),
    "Llama2Tokenizer": ("--tokenizer-model",),
    "HuggingFaceTokenizer": ("--tokenizer-model",),
    "HFTokenizer": ("--tokenizer-model",),
    "TikTokenizer": ("--tokenizer-model",),
    "NullTokenizer": ("--vocab-size",),
}


@lm_runs.rule("MLM060", ERROR, "init", megatron_lm("training/tokenizer/tokenizer.py:20"))
@mds_runs.rule("MDS034", ERROR, "init", megatron_deepspeed("megatron/tokenizer/tokenizer.py:12"))
def tokenizers_have_their_files(run: Run) -> Violations:
    """A tokenizer comes with the files, or the size, that it is made of.

    Prevents: AssertionError
    Fix: give the tokenizer's files
    """
    arguments = run.arguments
    kind = arguments.value("--tokenizer-type")
    for name in _TOKENIZERS.get(kind, ()) if isinstance(kind, str) else ():
        # newer versions take --tokenizer-model for every kind
        if arguments.lacks(name) and arguments.lacks("--tokenizer-model") and arguments.launch is not None:
            message = f"--tokenizer-type {kind} without {name}"
            hint = f"{name} {'50257' if name == '--vocab-size' else 'PATH'}"
            yield Violation(where=arguments.locate("--tokenizer-type"), message=message, hint=hint)
