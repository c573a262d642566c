"""How far a layout is from the measured runs.

Far from all of them an estimate is an extrapolation, and less certain.

A run has a kind: the program, the ZeRO stage, the kinds of parallelism, offload, LoRA. And it has
traits, sizes on which its speed depends in ways that the formulas don't capture exactly: how small
the pieces are that each rank works on, and how many ranks work together. `evidence.json` has the
kinds and traits of the published runs; `python -m benchmarks.uncertainty --write` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..job.records import Job
from ..resources import read_text
from .activations import local_tokens
from .flops import layer_flops
from .groups import group
from .layout import Layout, LayoutLike, Offload, rising
from .products import datasheet_flops_per_s
from .states import has_flat_gradients

Floats = NDArray[np.float64]

#: More octaves than there are between any two values: marks a trait that a layout doesn't have.
_FAR = 1000.0

#: The distance between having a trait and not having it.
_OTHER_KIND_OCTAVES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A size of a layout in which it can be compared with measured runs."""

    value: Callable[[Job, LayoutLike], Any]  #: NaN where the layout doesn't have the trait
    says: str  #: a phrase with the value, for a layout that no run resembles
    #: a value this close to a measured one counts as measured; 1 octave is a factor of two
    seen_octaves: float = 1.0


def _where(condition: Any, value: Any) -> Any:
    """The value where the condition holds, NaN elsewhere."""
    return np.where(condition, value, np.nan)


def _tokens_per_expert(job: Job, layout: LayoutLike) -> Any:
    """The tokens of one micro-batch that an expert gets on one rank, on average."""
    if not job.model.experts:
        return np.nan * layout.data
    tokens = (
        local_tokens(job, layout)
        * job.model.feed_forward.per_token
        * layout.expert_tensor
        / layout.tensor
    )
    return tokens * layout.expert / job.model.experts


def _leaves_its_rack(job: Job, layout: LayoutLike) -> Any:
    """Whether experts are sent tokens out of a fabric that joins several nodes."""
    if job.segments == (1,):
        return False
    return (layout.expert > 1) & (group(job, layout.expert, layout.expert_tensor).nodes > 1)


#: Programs whose measured runs are kept apart.
PROGRAMS: Final = ("Megatron-LM", "Megatron-DeepSpeed", "DeepSpeed")


def program_of(job: Job) -> int:
    """The index in `PROGRAMS` of the program whose runs are comparable with the job's.

    The length of `PROGRAMS` for a program that wasn't measured.
    """
    program = job.engine.measured_as
    return PROGRAMS.index(program) if program in PROGRAMS else len(PROGRAMS)


#: The yes-or-no parts of a kind, each one bit of its code.
_PARTS: Final[Mapping[str, Callable[[Job, LayoutLike], Any]]] = {
    "tensor parallelism": lambda job, row: row.tensor > 1,
    "pipeline parallelism": lambda job, row: row.pipeline > 1,
    "context parallelism": lambda job, row: row.context > 1,
    "expert parallelism": lambda job, row: row.expert > 1,
    "a mixture of experts": lambda job, row: job.model.experts > 0,
    "LoRA": lambda job, row: job.training.lora is not None,
    "offload": lambda job, row: row.offload != Offload.NONE,
    "mixers with a state": lambda job, row: job.model.has_state,
    "parameters on the host": lambda job, row: row.offload == Offload.OPTIMIZER_AND_PARAMETERS,
    "experts between racks": _leaves_its_rack,
    "sparse attention": lambda job, row: job.model.is_sparse,
}
_FIRST_PART: Final = 4  #: bits of a kind's code before those of its parts: stage and program
_CODES: Final = 1 << (_FIRST_PART + len(_PARTS))


def kind(job: Job, layout: LayoutLike) -> Any:
    """The kind as a number: 2 bits for the ZeRO stage, 2 for the program, then one for each part.

    One layout or columns.
    """
    parts = (
        np.asarray(part(job, layout), np.int64) << place
        for place, part in enumerate(_PARTS.values(), start=_FIRST_PART)
    )
    # An engine with flat gradients shards the optimizer under stage 0 as well, like stage 1.
    stage = np.where(has_flat_gradients(job, layout), 1, layout.zero_stage)
    if job.engine.sharding == "partitions":
        # DeepSpeed's stages 1 and 2 are one optimizer (runtime/zero/stage_1_and_2.py).
        stage = np.where(stage == 2, 1, stage)
    return sum(parts) + 4 * program_of(job) + stage


TRAITS: Final[Mapping[str, Trait]] = {
    "context": Trait(
        value=lambda job, row: _where(row.context > 1, job.training.sequence_length / row.context),
        says="context parallelism at {:,.0f} tokens a rank",
        seen_octaves=0.5,  # what a rank's chunk of a sequence loses grows as it shrinks
    ),
    "tensor": Trait(
        value=lambda job, row: _where(row.tensor > 1, row.tensor),
        says="tensor parallelism over {:.0f}",
    ),
    "pipeline": Trait(
        value=lambda job, row: _where(row.pipeline > 1, row.pipeline), says="{:.0f} pipeline stages"
    ),
    "chunk": Trait(
        value=lambda job, row: _where(
            row.pipeline > 1, job.model.layers / (row.pipeline * row.virtual_pipeline)
        ),
        says="model chunks of {:.1f} layers",
    ),
    "expert": Trait(value=_tokens_per_expert, says="{:,.0f} tokens an expert"),
    "span": Trait(
        value=lambda job, row: _where(
            row.expert > 1, group(job, row.expert, row.expert_tensor).nodes
        ),
        says="experts over {:.0f} nodes",
    ),
    "sharded": Trait(
        value=lambda job, row: _where(row.zero_stage >= 3, row.data * row.context),
        says="full sharding over {:,.0f}",
    ),
    "expert_overlap": Trait(
        value=lambda job, row: _where(row.expert_overlap, 1.0), says="overlapped all-to-alls"
    ),
    # The time of an average layer's forward products on one rank, at the datasheet's rate.
    "layer": Trait(
        value=lambda job, row: (
            1e3
            * layer_flops(job)
            * local_tokens(job, row)
            / row.tensor
            / datasheet_flops_per_s(job, "fp8")
        ),
        says="layers of {:.2g} ms",
    ),
}
#: Fields with which no run was measured: their usual value, and a phrase for any other.
UNSEEN: Final[Mapping[str, tuple[Any, str]]] = {
    "zero_copies": (1, "several copies of the sharded states"),
    "zero_hpz": (1, "a secondary partition of the parameters"),
    "context_heads": (1, "context parallelism over heads"),
    "offload_fraction": (1.0, "a part of the optimizer on the host"),
    "expert_tensor": (1, "experts cut by tensor parallelism"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The measured runs with which a layout is comparable."""

    runs: int  #: measured runs of the layout's kind that are close to it in every trait
    here: int  #: of these the ones on accelerators of the job's generation
    level: int  #: 2 where `runs` isn't 0, 1 where some runs are of its kind, else 0
    #: the distance to the nearest run, summed over the traits; 0 where a run is close in each
    octaves: float
    beyond: tuple[str, ...]  #: what wasn't measured, a phrase for each

    @property
    def name(self) -> str:
        """The level as a word: `like`, `kind` or `none`."""
        return ("none", "kind", "like")[self.level]

    def to_dict(self) -> dict[str, Any]:
        """The evidence as plain values, for JSON."""
        return {
            "like_runs": self.runs,
            "like_runs_of_generation": self.here,
            "extrapolated_octaves": round(self.octaves, 2),
            "extrapolated": list(self.beyond),
        }


class _Measured(NamedTuple):
    """The measured runs as columns, equal ones as one row."""

    counts: NDArray[np.int64]
    by_generation: tuple[Mapping[str, int], ...]  #: the counts by accelerators' generation
    kinds: NDArray[np.int64]
    traits: Floats  #: logarithms to base 2, NaN where a run doesn't have one; rows × traits


@cache
def _measured() -> _Measured:
    """The measured runs, equal ones as one row."""
    document = json.loads(read_text(__package__, "evidence.json"))
    if document["traits"] != list(TRAITS):
        raise ValueError(f"evidence.json has the traits {document['traits']}, not {list(TRAITS)}")
    by_generation, kinds, rows = zip(*document["runs"], strict=True)
    values = [[np.nan if value is None else value for value in row] for row in rows]
    return _Measured(
        counts=np.array([sum(counts.values()) for counts in by_generation], np.int64),
        by_generation=by_generation,
        kinds=np.array(kinds, np.int64),
        traits=np.array(values),
    )


def traits(job: Job, layout: LayoutLike, count: int) -> Floats:
    """The traits of `count` layouts (count × traits) as logarithms to base 2, NaN for missing."""
    columns = [
        np.broadcast_to(np.asarray(trait.value(job, layout), float), count)
        for trait in TRAITS.values()
    ]
    logarithms: Floats = np.log2(np.stack(columns, axis=1))
    return logarithms


def octaves_beyond(traits_of_rows: Floats, runs: Floats) -> Floats:
    """The distance in octaves of each layout from each run, by trait: n × k × traits.

    `traits_of_rows` is n × traits, `runs` is k × traits. It is 0 where a value counts as measured.
    """
    # Missing values become one number: equal to one another, and far from every other value.
    rows, measured = (
        np.where(np.isnan(values), -2 * _FAR, values).astype(np.float32)
        for values in (traits_of_rows, runs)
    )
    seen = np.array([trait.seen_octaves for trait in TRAITS.values()], np.float32)
    beyond = np.maximum(np.abs(rows[:, None] - measured) - seen, 0.0)
    octaves: Floats = np.where(beyond > _FAR, _OTHER_KIND_OCTAVES, beyond)
    return octaves


def unmeasured(job: Job, layout: LayoutLike) -> Any:
    """How many things of a layout no measured run had; each may be worse than its estimate.

    They are the respects in which its kind differs from the nearest measured one, and the details
    of `UNSEEN`. Sizes don't count, nor does anything that depends on the rates of the hardware. One
    layout or columns.
    """
    unusual = (
        np.asarray(getattr(layout, name) != value, np.int64) for name, (value, _) in UNSEEN.items()
    )
    return _unmeasured_in_kinds()[kind(job, layout)] + sum(unusual)


def _stage_bits(code: Any) -> Any:
    """The ZeRO stage in a kind's code."""
    return code & 3


def _program_bits(code: Any) -> Any:
    """The program in a kind's code."""
    return code >> 2 & 3


def differences(one: Any, other: Any) -> Any:
    """In how many respects two kinds differ: program, ZeRO stage and each part are one."""
    apart = np.bitwise_xor(one, other)
    parts = sum((apart >> place) & 1 for place in range(_FIRST_PART, _FIRST_PART + len(_PARTS)))
    return parts + (_stage_bits(apart) > 0) + (_program_bits(apart) > 0)


def unmeasured_parts(job: Job, layout: Layout) -> tuple[str, ...]:
    """The things of a layout that no measured run had, by name; as many as `unmeasured` counts."""
    ours = int(kind(job, layout))
    apart = ours ^ int(_nearest_kinds()[ours])
    names = []
    if _stage_bits(apart):
        names.append(f"ZeRO {layout.zero_stage}")
    if _program_bits(apart):
        names.append(job.engine.measured_as)
    for place, name in enumerate(_PARTS, start=_FIRST_PART):
        if apart >> place & 1:
            names.append(name if ours >> place & 1 else f"no {name}")
    unusual = (says for name, (usual, says) in UNSEEN.items() if getattr(layout, name) != usual)
    return (*names, *unusual)


@cache
def _unmeasured_in_kinds() -> NDArray[np.int64]:
    """By a kind's code, in how many respects it differs from the nearest measured kind."""
    counts: NDArray[np.int64] = differences(np.arange(_CODES), _nearest_kinds())
    return counts


@cache
def _nearest_kinds() -> NDArray[np.int64]:
    """By a kind's code, that of the nearest measured kind.

    A program that was measured is compared with its own runs alone.
    """
    codes, measured = np.arange(_CODES), rising(_measured().kinds)
    ours, theirs = _program_bits(codes), _program_bits(measured)
    of_another = np.isin(ours, theirs)[:, None] & (ours[:, None] != theirs)
    # How far two kinds are apart depends only on the bits in which they differ: it is looked up by
    # these, by an index, as `take` refuses 64-bit places where pointers have 32 (in a browser).
    apart = differences(codes, 0).astype(np.int16)[codes[:, None] ^ measured]
    far = np.where(of_another, np.iinfo(np.int16).max, apart)
    nearest: NDArray[np.int64] = measured[far.argmin(axis=1)]
    return nearest


def evidence(job: Job, layout: Layout) -> Evidence:
    """The measured runs with which one layout is comparable."""
    layout_traits, measured = traits(job, layout, 1), _measured()
    counts, kinds, runs = measured.counts, measured.kinds, measured.traits
    octaves = octaves_beyond(layout_traits, runs)[0]
    distances = octaves.sum(axis=1)
    nearest = octaves[distances.argmin()]
    same_kind = kinds == int(kind(job, layout))

    not_measured = []
    if not (same_kind & (counts > 0)).any():
        not_measured.append(_kind_in_words(job, layout))
    for column, trait in enumerate(TRAITS.values()):
        value = layout_traits[0, column]
        is_seen = (np.abs(runs[:, column] - value) <= trait.seen_octaves).any()
        if nearest[column] > 0 and not np.isnan(value) and not is_seen:
            not_measured.append(trait.says.format(2**value))
    unusual = [says for name, (usual, says) in UNSEEN.items() if getattr(layout, name) != usual]
    not_measured += unusual

    close = np.flatnonzero((distances == 0) & same_kind)
    close_runs = int(counts[close].sum())
    generation = job.cluster.accelerator.generation.name
    here = sum(measured.by_generation[row].get(generation, 0) for row in close)
    if not not_measured and not close_runs:
        not_measured = ["each part was measured, but not together"]
    return Evidence(
        runs=0 if unusual else close_runs,
        here=0 if unusual else here,
        level=0 if unusual else int(same_kind.any()) + (close_runs > 0),
        octaves=float(distances.min()) + len(unusual) * _OTHER_KIND_OCTAVES,
        beyond=tuple(not_measured),
    )


def _kind_in_words(job: Job, layout: Layout) -> str:
    """The kind of a layout's run: `ZeRO 3 in DeepSpeed with pipeline, LoRA`."""
    cut_by = job.engine.measured_cut if layout.tensor > 1 else None
    program = cut_by or job.engine.measured_as
    parts = [name for name, part in _PARTS.items() if part(job, layout)]
    return f"ZeRO {layout.zero_stage} in {program}{' with ' if parts else ''}{', '.join(parts)}"
