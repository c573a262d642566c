"""Distance of a layout from measured runs.

Far from all of them an estimate is extrapolated, and less certain.

A run is described by its kind (the program, the ZeRO stage, the kinds of parallelism, offload,
LoRA) and by traits that its speed depends on in ways the formulae don't know exactly: how small the
pieces are that each rank works on, and how many ranks work together. `evidence.json` has those of
the published runs, without their times; `python -m benchmarks.uncertainty --write` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..job.records import Job
from ..resources import read_text
from .activations import local_tokens
from .flops import layer_flops
from .groups import group
from .layout import Layout, LayoutLike, Offload, is_among, rising
from .products import datasheet_flops_per_s
from .states import has_flat_gradients

Floats = NDArray[np.float64]
_FAR = 1000.0  #: more octaves than there are between any two values
#: Distance between having a trait and lacking it.
_OTHER_KIND_OCTAVES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """Something about a layout on which runs can be alike."""

    value: Callable[[Job, LayoutLike], Any]  #: NaN where the layout doesn't have it
    says: str  #: with the value, where no run is like it
    #: so far from a measured run, it counts as seen: within a factor of two
    seen_octaves: float = 1.0


def _where(condition: Any, value: Any) -> Any:
    return np.where(condition, value, np.nan)


def _tokens_per_expert(job: Job, layout: LayoutLike) -> Any:
    if not job.model.experts:
        return np.nan * layout.data
    tokens = (
        local_tokens(job, layout)
        * job.model.feed_forward.per_token
        * layout.expert_tensor
        / layout.tensor
    )
    return tokens * layout.expert / job.model.experts


#: Programs whose runs are told apart.
PROGRAMS: Final = ("Megatron-LM", "Megatron-DeepSpeed", "DeepSpeed")


def program_of(job: Job) -> int:
    """The number of the program whose runs speak for the job's.

    One more than any number where none was measured.
    """
    program = job.engine.measured_as
    return PROGRAMS.index(program) if program in PROGRAMS else len(PROGRAMS)


#: Parts of a kind beside the program and the ZeRO stage.
_PARTS: Final[Mapping[str, Callable[[Job, LayoutLike], Any]]] = {
    "tensor": lambda job, row: row.tensor > 1,
    "pipeline": lambda job, row: row.pipeline > 1,
    "context": lambda job, row: row.context > 1,
    "expert parallelism": lambda job, row: row.expert > 1,
    "a mixture of experts": lambda job, row: job.model.experts > 0,
    "LoRA": lambda job, row: job.training.lora is not None,
    "offload": lambda job, row: row.offload != Offload.NONE,
    "mixers with a state": lambda job, row: job.model.has_state,
}


def kind(job: Job, layout: LayoutLike) -> Any:
    """A code of what is no size: the program, the ZeRO stage, the kinds of parallelism."""
    parts = (
        np.asarray(part(job, layout), np.int64) << place
        for place, part in enumerate(_PARTS.values(), start=4)
    )
    # Under a pipeline stage 0 shards the optimizer, too.
    stage = np.where(has_flat_gradients(job, layout), 1, layout.zero_stage)
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
    # of an average layer's forward products on one rank, at the datasheet's rate
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
#: Details that no measured run is known to have, and how to say so.
UNSEEN: Final[Mapping[str, tuple[Any, str]]] = {
    "zero_copies": (1, "several copies of the sharded states"),
    "zero_hpz": (1, "a secondary partition of the parameters"),
    "context_heads": (1, "context parallelism over heads"),
    "offload_fraction": (1.0, "a part of the optimizer on the host"),
    "expert_tensor": (1, "experts cut by tensor parallelism"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Measured runs that speak for an estimate."""

    runs: int  #: measured runs that are like the layout in every trait
    level: int  #: 2 where there are any, 1 where some are of its kind, else 0
    #: how far beyond them the nearest is, all traits together; 0 where there are any
    octaves: float
    beyond: tuple[str, ...]  #: in what: a phrase for each trait

    @property
    def name(self) -> str:
        """The level as a word: `like`, `kind` or `none`."""
        return ("none", "kind", "like")[self.level]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "like_runs": self.runs,
            "extrapolated_octaves": round(self.octaves, 2),
            "extrapolated": list(self.beyond),
        }


@cache
def _measured() -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Measured runs by their different values: how many, their kinds, their traits.

    Traits are logarithms to base 2.
    """
    document = json.loads(read_text(__package__, "evidence.json"))
    if document["traits"] != list(TRAITS):
        raise ValueError(f"evidence.json has the traits {document['traits']}, not {list(TRAITS)}")
    counts, kinds, rows = zip(*document["runs"], strict=True)
    values = [[np.nan if value is None else value for value in row] for row in rows]
    return np.array(counts, np.int64), np.array(kinds, np.int64), np.array(values)


def traits(job: Job, layout: LayoutLike, count: int) -> Floats:
    """Logarithms to base 2 of every trait, `count` rows; NaN where a layout doesn't have one."""
    columns = [
        np.broadcast_to(np.asarray(trait.value(job, layout), float), count)
        for trait in TRAITS.values()
    ]
    logarithms: Floats = np.log2(np.stack(columns, axis=1))
    return logarithms


def octaves_beyond(traits_of_rows: Floats, runs: Floats) -> Floats:
    """Octaves by which rows (n × traits) are beyond runs (k × traits) in each trait: n × k ×
    traits.
    """
    rows, others = (
        np.where(np.isnan(values), -2 * _FAR, values).astype(np.float32)
        for values in (traits_of_rows, runs)
    )
    seen = np.array([trait.seen_octaves for trait in TRAITS.values()], np.float32)
    beyond = np.maximum(np.abs(rows[:, None] - others) - seen, 0.0)
    octaves: Floats = np.where(beyond > _FAR, _OTHER_KIND_OCTAVES, beyond)
    return octaves


def of_measured_kind(job: Job, layout: LayoutLike) -> Any:
    """Tell which layouts are of a kind that some run is of, with no detail that none has.

    Sizes don't count, nor anything that depends on the rates of the hardware.
    """
    usual = np.asarray(True)
    for name, (value, _) in UNSEEN.items():
        usual = usual & (getattr(layout, name) == value)
    return usual & is_among(kind(job, layout), _measured_kinds())


@cache
def _measured_kinds() -> NDArray[np.int64]:
    return rising(_measured()[1])


def evidence(job: Job, layout: Layout) -> Evidence:
    """Find the measured runs that speak for the estimate of one layout."""
    of_layout, (counts, kinds, runs) = traits(job, layout, 1), _measured()
    octaves = octaves_beyond(of_layout, runs)[0]

    totals, same = octaves.sum(axis=1), kinds == int(kind(job, layout))
    nearest = octaves[totals.argmin()]
    beyond = []
    if not (same & (counts > 0)).any():
        cut = job.engine.measured_cut if layout.tensor > 1 else None
        program = cut or job.engine.measured_as
        used = [name for name, part in _PARTS.items() if part(job, layout)]
        beyond.append(
            f"ZeRO {layout.zero_stage} in {program}{' with ' if used else ''}{', '.join(used)}"
        )
    # Traits that the layout has, and no run at all has like that.
    for i, trait in enumerate(TRAITS.values()):
        value = of_layout[0, i]
        seen = (np.abs(runs[:, i] - value) <= trait.seen_octaves).any()
        if nearest[i] > 0 and not np.isnan(value) and not seen:
            beyond.append(trait.says.format(2**value))
    unseen = [says for name, (usual, says) in UNSEEN.items() if getattr(layout, name) != usual]
    like = int(counts[(totals == 0) & same].sum())  # another program's runs count as none
    return Evidence(
        runs=0 if unseen else like,
        level=0 if unseen else int(same.any()) + (like > 0),
        octaves=float(totals.min()) + len(unseen) * _OTHER_KIND_OCTAVES,
        beyond=tuple(
            beyond + unseen or ([] if like else ["each part was measured, but not together"])
        ),
    )
