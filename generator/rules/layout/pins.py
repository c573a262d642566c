"""Values of a layout that are known before the search: the pins, and what follows from them and from the job."""

from __future__ import annotations

from dataclasses import fields
from math import prod
from typing import Any

from ...estimate.layout import DEFAULTS, FIELDS, Layout, Modules, Offload, Recompute
from ...facts.facts import UNKNOWN, partial
from ...job.records import Job, Pins
from .identities import WORLD_FACTORS
from .sequence import exchanges_heads_only

RECOMPUTE = {choice.label: choice for choice in Recompute}
OFFLOAD = {choice.label: choice for choice in Offload}

#: How full or selective recomputation is done.
RECOMPUTE_DETAILS = ("recompute_layers", "recompute_group", "recompute_modules")


def pinned_values(pins: Pins) -> dict[str, Any]:
    """The keys that the user fixed, in the values of a `Layout`."""
    values = {f.name: getattr(pins, f.name) for f in fields(pins) if getattr(pins, f.name) is not None}
    for name, choices in (("recompute", RECOMPUTE), ("offload", OFFLOAD)):
        if name in values:
            values[name] = choices[values[name]]
    if modules := values.pop("recompute_modules", ()):
        values["recompute_modules"] = Modules.of(modules)
    return {**_consequences(values), **values}


def _consequences(pins: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that are left open, but follow from a detail that is fixed."""
    follows = {
        "recompute_layers": ("recompute", Recompute.FULL),
        "recompute_group": ("recompute", Recompute.FULL),
        "recompute_modules": ("recompute", Recompute.SELECTIVE),
        "offload_fraction": ("offload", Offload.OPTIMIZER),
    }
    return dict(follows[name] for name in follows if pins.get(name, DEFAULTS[name]) != DEFAULTS[name])


def implied_values(job: Job) -> dict[str, Any]:
    """The keys that leave no choice for this job, whatever is pinned."""
    implied: dict[str, Any] = {"first_stage_layers": 0, "last_stage_layers": 0}  # never searched
    if job.gpus == 1:
        implied.update(dict.fromkeys(("data", "tensor", "pipeline", "context", "expert", "virtual_pipeline"), 1))
    if job.framework.runs("AutoTP"):
        implied.update(pipeline=1, expert=1, sequence_parallel=False)
    if not job.framework.runs("Megatron-LM"):
        implied["virtual_pipeline"] = 1
    if not job.model.is_moe:
        implied.update(expert=1, expert_tensor=1)
    return implied


def known_values(job: Job) -> dict[str, Any]:
    """Implied values, overruled by pins, with the last factor of the world filled in when the others are known."""
    known = {**implied_values(job), **pinned_values(job.pins)}
    missing = [name for name in WORLD_FACTORS if name not in known]
    if "tensor" in known and not job.framework.runs("Megatron-LM"):
        known.setdefault("expert_tensor", known["tensor"])
    if any(name in known for name in RECOMPUTE_DETAILS):  # whoever sets one of them leaves the others
        known = {**{name: DEFAULTS[name] for name in RECOMPUTE_DETAILS}, **known}
    rest = prod(known[name] for name in WORLD_FACTORS if name in known)
    if len(missing) == 1 and job.gpus % rest == 0:
        known[missing[0]] = job.gpus // rest
    if "context" in known and exchanges_heads_only(job):
        known.setdefault("context_heads", known["context"])
    return known


def whole_layout(values: dict[str, Any]) -> Layout | None:
    """The layout with `values` when they leave no choice but the details that have a default; else None."""
    known = {**DEFAULTS, **values}
    return Layout(**known) if known.keys() >= {*FIELDS} else None


def layout_of(values: dict[str, Any]) -> Layout:
    """A layout of which no more than `values` is known."""
    return partial(Layout, **{**dict.fromkeys(FIELDS, UNKNOWN), **values})
