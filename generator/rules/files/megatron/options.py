"""Megatron options by themselves: known, typed, there, and said once."""

from __future__ import annotations

from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....documents.megatron_options import Flavour, option_table
from ....documents.megatron_words import GivenOption
from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ...sources import megatron_deepspeed, megatron_lm
from .rule import (
    CONTEXT,
    EXPERT,
    GLOBAL,
    LM,
    MDS,
    MICRO,
    PIPELINE,
    TENSOR,
    ULYSSES,
    Run,
    lm_arguments,
    lm_runs,
    mds_arguments,
    mds_runs,
)

#: Read by the parser only to be refused, and what says the same now.
_REMOVED: Final = {
    "--batch-size": MICRO,
    "--warmup": "--lr-warmup-fraction",
    "--model-parallel-size": TENSOR,
}
#: What the two projects call differently, in the order Megatron-LM, Megatron-DeepSpeed.
_EQUIVALENTS: Final = (
    ("--context-parallel-size", "--ds-sequence-parallel-size"),
    ("--expert-model-parallel-size", "--moe-expert-parallel-size"),
    ("--num-query-groups", "--num-key-value-heads"),
    ("--moe-router-topk", "--topk"),
    ("--moe-aux-loss-coeff", "--moe-loss-coeff"),
    ("--norm-epsilon", "--layernorm-epsilon"),
    ("--rotary-base", "--rotary-position-embeddings-theta"),
    ("--attention-backend", "--use-flash-attn-v2"),
    ("--fp8-format", "--fp8-hybrid"),
)
_REQUIRED: Final = (
    "--num-layers",
    "--hidden-size",
    "--num-attention-heads",
    "--max-position-embeddings",
    "--seq-length",
)
#: Options that bring the shape from elsewhere: a checkpoint, a file.
_SHAPE_FROM: Final = (
    "--use-checkpoint-args",
    "--yaml-cfg",
    "--heterogeneous-layers-config-path",
    "--hybrid-layer-pattern",
    "--use-dataset-only",
    "--retro-workdir",
)
_SAME: Final = {"--num-layers": "--encoder-num-layers", "--seq-length": "--encoder-seq-length"}
_POSITIVE: Final = (
    *(TENSOR, PIPELINE, CONTEXT, ULYSSES, EXPERT, MICRO, GLOBAL),
    *("--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--seq-length"),
    *("--moe-expert-parallel-size", "--num-query-groups", "--num-key-value-heads", "--kv-channels"),
    *("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"),
)


_PROJECTS: Final[dict[Flavour, str]] = {LM: "Megatron-LM", MDS: "Megatron-DeepSpeed"}


@lm_arguments.rule("MLM047", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS024", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def options_are_known(run: Run) -> Violations:
    """Every option is one that the parser knows: it takes no abbreviations and refuses what is unknown.

    Prevents: error: unrecognized arguments, on every rank after the queue
    Fix: spell the option as the parser has it
    """
    arguments = run.arguments
    own, name = arguments.is_own_program, _PROJECTS[arguments.flavour]
    other: Flavour = MDS if arguments.flavour == LM else LM
    for stray in arguments.strays:
        if not stray.is_option:
            continue
        foreign = option_table(other).has(stray.word)
        near = _equivalent(stray.word) if foreign else arguments.table.near(stray.word, slip=not own)
        if not own and (foreign or near is None):
            continue  # a training script may add options of its own
        surely = own and (foreign or near is not None)
        message = f"{stray.word} is no option of {name}" + ("" if surely else " itself")
        message += f": it is one of {_PROJECTS[other]}" if foreign else ""
        hint = (
            f"did you mean {near}?" if near else "remove it" if foreign else "remove it, unless the script is a fork's"
        )
        yield Violation(where=stray.where, message=message, hint=hint, severity=None if surely else Severity.WARNING)


def _equivalent(name: str) -> str | None:
    """What the other project calls an option of the one."""
    return next((pair[1 - pair.index(name)] for pair in _EQUIVALENTS if name in pair), None)


@lm_arguments.rule("MLM049", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS026", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def words_belong_to_options(run: Run) -> Violations:
    """Every word is an option or the value of one: flags take none, and nothing stands alone.

    Prevents: error: unrecognized arguments
    Fix: remove the word, or the space within a value
    """
    arguments = run.arguments
    for stray in arguments.strays:
        if not stray.is_option:
            option = arguments.table.get(stray.after) if stray.after else None
            flag = option is not None and option.kind == "flag"
            hint = f"remove it: {stray.after} takes no value" if flag else "remove it, or quote the value that it is of"
            yield Violation(where=stray.where, message=f"{stray.word!r} belongs to no option", hint=hint)


@lm_arguments.rule("MLM048", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS025", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def values_are_of_their_type(run: Run) -> Violations:
    """Every value is of its option's type and one of its choices.

    Prevents: error: argument ...: invalid value, or invalid choice
    Fix: give a value of the option's type
    """
    arguments = run.arguments
    for option in arguments.given:
        if option.problem is not None:
            known = arguments.table.get(option.name)
            given = f"{option.written} {option.text}".rstrip()
            message = f"{given}: {option.written} {option.problem}"
            if option.problem.startswith("has no"):
                message = f"{option.written} {option.problem}"
            hint = _passing(option.text, known.choices if known else ())
            yield Violation(where=option.where, message=message, hint=hint)


def _passing(text: str, choices: tuple[object, ...]) -> str | None:
    """The choice that differs in letter case only, or a number in other spelling."""
    same = [choice for choice in choices if str(choice).lower() == text.lower()]
    if same:
        return f"{same[0]}"
    try:
        number = float(text.replace("_", "").replace(",", ""))
    except ValueError:
        return None
    return f"{round(number)}" if abs(number) < 1e15 and number == round(number) else None


@lm_arguments.rule("MLM050", WARNING, "parse", megatron_lm("training/arguments.py:119"))
@mds_arguments.rule("MDS027", WARNING, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def options_are_given_once(run: Run) -> Violations:
    """An option has one value: of several, the last wins without a word.

    Prevents: argparse keeps the last value silently
    Fix: give the option once
    """
    arguments = run.arguments
    first: dict[str, GivenOption] = {}
    for option in arguments.given:
        before = first.setdefault(option.name, option)
        if before is not option and before.text != option.text and "..." not in before.text + option.text:
            message = f"{option.written} {option.text} overrules {before.written} {before.text}, given before it"
            yield Violation(where=option.where, message=message, hint=f"keep one of the two {option.name}")


@lm_runs.rule("MLM051", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_runs.rule("MDS028", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def sizes_are_positive(run: Run) -> Violations:
    """Sizes and batches are at least 1.

    Prevents: ZeroDivisionError, or an assertion
    Fix: give 1 or more
    """
    arguments = run.arguments
    for name in _POSITIVE:
        value = arguments.integer(name)
        if arguments.has(name) and value is not None and value < 1:
            yield Violation(where=arguments.locate(name), message=f"{name} {value} is less than 1", hint=f"{name} 1")


def removed_options(arguments: MegatronArguments) -> Violations:
    """What the parser still knows and then refuses."""
    for name, now in _REMOVED.items():
        if arguments.has(name):
            yield Violation(
                where=arguments.locate(name), message=f"{name} is no longer valid", hint=f"use {now} instead"
            )


@lm_runs.rule("MLM034", ERROR, "init", megatron_lm("training/arguments.py:591-601"))
def removed_options_are_gone(run: Run) -> Violations:
    """Options that were removed are not given: the parser takes them, and the start refuses them.

    Prevents: AssertionError: ... argument is no longer valid
    Fix: use the option that replaced it
    """
    arguments = run.arguments
    yield from removed_options(arguments)
    if arguments.has("--checkpoint-activations"):
        message = "--checkpoint-activations is no longer valid: Megatron-LM prints so and exits"
        hint = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        yield Violation(where=arguments.locate("--checkpoint-activations"), message=message, hint=hint)


@mds_runs.rule("MDS007", ERROR, "init", megatron_deepspeed("megatron/arguments.py:126-164"))
def micro_batch_is_given(run: Run) -> Violations:
    """--micro-batch-size is given, and none of the options that it and others replaced.

    Prevents: AssertionError
    Fix: give --micro-batch-size
    """
    arguments = run.arguments
    yield from removed_options(arguments)
    yield from _missing(arguments, MICRO)


def _missing(arguments: MegatronArguments, name: str) -> Violations:
    others = (name, _SAME.get(name, name), *_SHAPE_FROM)
    if all(map(arguments.lacks, others)) and arguments.is_own_program:
        yield Violation(
            where=arguments.locate(""), message=f"{name} is not given, and has no default", hint=f"{name} N"
        )


@lm_runs.rule("MLM052", ERROR, "parse", megatron_lm("training/arguments.py:119"))
@mds_runs.rule("MDS029", ERROR, "parse", megatron_deepspeed("megatron/arguments.py:23"))
def sizes_are_given(run: Run) -> Violations:
    """The model's shape, the sequence length and the micro-batch have no defaults.

    Prevents: AssertionError: ... argument is None
    Fix: give the option
    """
    arguments = run.arguments
    for name in _REQUIRED if arguments.flavour == MDS else (*_REQUIRED, MICRO):
        yield from _missing(arguments, name)


@lm_runs.rule("MLM053", WARNING, "parse", "NVIDIA/Megatron-LM megatron/training/arguments.py @ core_v0.8.0 to d98e8a64")
def options_are_of_one_version(run: Run) -> Violations:
    """All options are of one version of Megatron-LM: some were removed before others came.

    Prevents: error: unrecognized arguments, whichever version runs
    Fix: use the options of one version
    """
    arguments = run.arguments
    table = arguments.table
    if table.newest_with(frozenset(arguments.values)) is not None:
        return
    spans = {name: option.versions for name in arguments.values if (option := table.get(name)) and option.versions}
    old = min(spans, key=lambda name: spans[name][-1])
    new = max(spans, key=lambda name: spans[name][0])
    last, first = spans[old][-1], spans[new][0]
    if first - last > 1:  # between neighbours lie releases that may have both
        message = (
            f"{new} came after {old} was removed: of the versions looked at, {table.versions[last]} is the last with"
            f" {old}, {table.versions[first]} the first with {new}"
        )
        yield Violation(where=arguments.locate(old), message=message, hint=f"remove {old} or {new}")
