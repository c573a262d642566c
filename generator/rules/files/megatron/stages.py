"""Layers over pipeline stages and interleaved chunks in Megatron arguments."""

from __future__ import annotations

from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....findings import ERROR, Violation, Violations
from ...numbers import divisors, listed, nearest, neighbours
from ...sources import megatron_deepspeed, megatron_lm
from .rule import PIPELINE, Run, degree, excludes, lm_runs, mds_runs, one_of, sized

_PER_CHUNK: Final = "--num-layers-per-virtual-pipeline-stage"
_CHUNKS: Final = "--num-virtual-stages-per-pipeline-rank"
_LAYOUT: Final = "--pipeline-model-parallel-layout"
_FIRST: Final = "--decoder-first-pipeline-num-layers"
_LAST: Final = "--decoder-last-pipeline-num-layers"
_COUNTED: Final = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
#: What divides layers in ways of its own.
_OTHERWISE: Final = (_LAYOUT, "--hybrid-layer-pattern", "--hybrid-override-pattern", "--standalone-embedding-stage")


_CUTS: Final = (*_OTHERWISE, *_COUNTED, _FIRST, _LAST, _PER_CHUNK, _CHUNKS)


def _layers(arguments: MegatronArguments) -> int | None:
    """The layers that stages share, ends counted where they count; None where they can't be known."""
    layers = sized(arguments, one_of(arguments, "--num-layers", "--encoder-num-layers"))
    if layers is None or layers < 1 or not arguments.sure(*_CUTS) or any(map(arguments.has, _OTHERWISE)):
        return None
    return layers + sum(map(arguments.has, _COUNTED))


@lm_runs.rule("MLM003", ERROR, "init", megatron_lm("training/arguments.py:997"))
def stages_share_layers(run: Run) -> Violations:
    """Pipeline stages hold equal numbers of layers, those that are counted or set apart considered.

    Prevents: AssertionError: Number of layers should be divisible by the pipeline-model-parallel size
    Fix: change the stages, count the ends as layers, or set the last stage's layers
    """
    arguments = run.arguments
    layers, stages = _layers(arguments), degree(arguments, PIPELINE)
    if layers is None or stages is None or arguments.has("--decoder-num-layers"):
        return
    ends = [sized(arguments, name) for name in (_FIRST, _LAST) if arguments.has(name)]
    if any(count is None or count < 1 for count in ends):
        return
    if ends:
        yield from _middle_stages(arguments, layers, stages, [count or 0 for count in ends])
    elif layers % stages:
        counted = sum(map(arguments.has, _COUNTED))
        plus = f" with {counted} more for the ends counted is {layers}," if counted else ""
        message = f"--num-layers {layers - counted}{plus} not a multiple of {PIPELINE} {stages}"
        message = message if counted else message.replace(" not a", " is not a")
        yield Violation(where=arguments.locate(PIPELINE), message=message, hint=_stages_hint(layers, stages))


def _stages_hint(layers: int, stages: int) -> str:
    hint = f"{PIPELINE} {listed(nearest(divisors(layers), stages, 4))}"
    last = layers - (stages - 1) * -(-layers // stages)
    return f"{hint}, or {_LAST} {last}" if last > 0 else hint


def _middle_stages(arguments: MegatronArguments, layers: int, stages: int, ends: list[int]) -> Violations:
    """The stages between those whose layers are given."""
    rest, middle = layers - sum(ends), stages - len(ends)
    fits = (rest == 0) == (middle == 0) and (middle == 0 or rest % middle == 0)
    if rest >= 0 and (fits or middle < 0):
        return
    given = " and ".join(f"{name} {arguments.value(name)}" for name in (_FIRST, _LAST) if arguments.has(name))
    message = f"{given} leave {rest} of {layers} layers for the other {middle} stages, which must share them evenly"
    name = one_of(arguments, _LAST, _FIRST)
    own = sized(arguments, name) or 1
    room = layers - sum(ends) + own  # of this end and of the stages between
    near = own + (room - own) % middle if middle > 0 else 0
    fitting = [count for count in (near - middle, near, near + middle) if 0 < count < room]
    hint = f"{name} {listed(nearest(fitting, own, 3))}" if middle > 0 and fitting else None
    yield Violation(where=arguments.locate(name), message=message, hint=hint)


@lm_runs.rule("MLM014", ERROR, "init", megatron_lm("training/arguments.py:1000-1009"))
def interleaving_has_stages(run: Run) -> Violations:
    """Interleaving needs a pipeline: more than one stage, more than two where sends don't overlap.

    Prevents: AssertionError: When interleaved schedule is used ...
    Fix: more stages, or no interleaving
    """
    arguments = run.arguments
    stages, name = degree(arguments, PIPELINE), one_of(arguments, _PER_CHUNK, _CHUNKS)
    if stages is None or chunks_of(arguments) in (None, 1):
        return
    overlaps = arguments.lacks("--no-overlap-p2p-communication")
    least = 2 if overlaps or not arguments.has("--no-overlap-p2p-communication") else 3
    if stages < least:
        why = "" if overlaps else " with --no-overlap-p2p-communication"
        message = f"{name} {arguments.value(name)}{why} needs {PIPELINE} {least} or more, not {stages}"
        yield Violation(where=arguments.locate(name), message=message, hint=f"{PIPELINE} {least}, or no {name}")


def chunks_of(arguments: MegatronArguments) -> int | None:
    """Model chunks of a stage; None where interleaving isn't asked for, or can't be known."""
    if arguments.has(_CHUNKS):
        return sized(arguments, _CHUNKS)
    layers, stages, each = _layers(arguments), degree(arguments, PIPELINE), sized(arguments, _PER_CHUNK)
    if not each or each < 1 or layers is None or stages is None or layers % stages or layers // stages % each:
        return None
    return layers // stages // each


@lm_runs.rule("MLM015", ERROR, "init", megatron_lm("training/arguments.py:968-973"))
def chunks_share_layers(run: Run) -> Violations:
    """Every chunk of an interleaved stage holds the same number of layers.

    Prevents: AssertionError: number of layers per pipeline stage must be divisible ...
    Fix: chunks that divide a stage's layers
    """
    arguments = run.arguments
    layers, stages = _layers(arguments), degree(arguments, PIPELINE)
    if layers is None or stages is None:
        return
    if arguments.has(_FIRST) or arguments.has(_LAST):
        yield from _uneven_chunks(arguments, layers, stages)
        return
    for name in (_PER_CHUNK, _CHUNKS):
        size = sized(arguments, name)
        if size and size > 0 and layers % stages == 0 and layers // stages % size:
            each = layers // stages
            message = f"{name} {size} does not divide the {each} layers of a stage ({layers} over {stages} stages)"
            hint = f"{name} {listed(nearest(divisors(each), size, 4))}"
            yield Violation(where=arguments.locate(name), message=message, hint=hint)


def _uneven_chunks(arguments: MegatronArguments, layers: int, stages: int) -> Violations:
    """Chunks of the stages whose layers are given, and of those between them."""
    chunks = sized(arguments, _CHUNKS)
    if not chunks or chunks < 2:
        return
    ends = {name: sized(arguments, name) or 0 for name in (_FIRST, _LAST) if arguments.has(name)}
    for name, held in ends.items():
        if held > 0 and held % chunks:
            message = f"{_CHUNKS} {chunks} does not divide {name} {held}"
            yield Violation(
                where=arguments.locate(name), message=message, hint=f"{name} {listed(neighbours(chunks, held))}"
            )
    rest, middle = layers - sum(ends.values()), stages - len(ends)
    if middle > 0 and rest > 0 and rest % middle == 0 and rest // middle % chunks:
        message = f"{_CHUNKS} {chunks} does not divide the {rest // middle} layers of a stage between the ends"
        hint = f"{_CHUNKS} {listed(nearest(divisors(rest // middle), chunks, 4))}"
        yield Violation(where=arguments.locate(_CHUNKS), message=message, hint=hint)


@lm_runs.rule(
    "MLM055", ERROR, "init", megatron_lm("training/arguments.py:926, core/transformer/transformer_config.py:2229-2259")
)
def stages_are_cut_one_way(run: Run) -> Violations:
    """Stages and chunks are cut by one of the ways to say how.

    Prevents: AssertionError, or ValueError
    Fix: keep one
    """
    arguments = run.arguments
    yield from excludes(arguments, _PER_CHUNK, [_CHUNKS, _LAYOUT])
    yield from excludes(arguments, _CHUNKS, [_LAYOUT])
    yield from excludes(arguments, _LAYOUT, [_FIRST, _LAST, *_COUNTED])
    for first in (_FIRST, _LAST):
        yield from excludes(arguments, first, _COUNTED)
        yield from excludes(arguments, _PER_CHUNK, [first], f": {_CHUNKS} goes with uneven stages")


@mds_runs.rule("MDS010", ERROR, "init", megatron_deepspeed("megatron/arguments.py:173-176"))
def deepspeed_interleaves_long_pipelines(run: Run) -> Violations:
    """Interleaving needs more than two stages, and chunks that divide the layers.

    Prevents: AssertionError: pipeline-model-parallel size should be greater than 2 with interleaved schedule
    Fix: more stages, or no interleaving
    """
    arguments = run.arguments
    size, stages, layers = sized(arguments, _PER_CHUNK), degree(arguments, PIPELINE), sized(arguments, "--num-layers")
    if size is None or size < 1:
        return
    where = arguments.locate(_PER_CHUNK)
    if stages is not None and stages <= 2:
        message = f"{_PER_CHUNK} {size} needs {PIPELINE} 3 or more, not {stages}"
        yield Violation(where=where, message=message, hint=f"{PIPELINE} 4, or no {_PER_CHUNK}")
    if layers and layers > 0 and layers % size:
        message = f"{_PER_CHUNK} {size} does not divide --num-layers {layers}"
        yield Violation(where=where, message=message, hint=f"{_PER_CHUNK} {listed(nearest(divisors(layers), size, 4))}")
