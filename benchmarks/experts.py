"""Our choice beside the experts': layouts tuned or run in production, estimated as they were run
and planned anew.

`python -m benchmarks.experts [NAME …]` prints the tables of RESULTS.md. No time in them is
measured.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

import dsgen
from benchmarks.published import layout_text
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.findings import Severity
from dsgen.job.records import Job, Pins
from dsgen.job.releases import NEWEST
from dsgen.search.plan import Infeasible, Plan, SearchResult
from dsgen.search.summary import CAUSES
from dsgen.text.wording import dots
from dsgen.units import GIB

DATA = Path(__file__).parent / "data" / "experts.yaml"
#: Claims above this are told apart by cause.
CLAIM = 0.10
#: Sizes of the layout that `layout_text` leaves out.
SIZES = ("zero_copies", "zero_hpz", "context_heads", "first_stage_layers", "last_stage_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """One row of the collection."""

    name: str
    row: Mapping[str, Any]
    spec: Mapping[str, Any]  #: the job, without layout
    pins: Mapping[str, Any]  #: what the source says of the layout, in keys that the spec has
    unread: tuple[str, ...]  #: what the source says and the spec has no key for

    @property
    def allowed(self) -> Mapping[str, str]:
        """Rules, or `memory`, that may refuse the row, with the reason that was checked."""
        found: Mapping[str, str] = self.row.get("refused", {})
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An expert's layout as estimated, and ours for the same job."""

    expert: Expert
    theirs: SearchResult | Infeasible
    nearest: Plan  #: theirs, whether it is legal or not
    ours: SearchResult | Infeasible
    then: tuple[Plan, Plan] | None  #: both with what their program could do, where that is less

    @property
    def refused_by(self) -> str | None:
        """The rule that leaves no completion of theirs."""
        return self.theirs.binding_rule if isinstance(self.theirs, Infeasible) else None

    @property
    def claim(self) -> float | None:
        """By how much ours is said to be faster: theirs over ours, less one."""
        if not self.ours.plans:
            return None
        return _claim(self.nearest, self.ours.plans[0])

    @property
    def claim_then(self) -> float | None:
        """The same with what their program could do when the layout was made."""
        return _claim(*self.then) if self.then else self.claim

    def causes(self) -> list[tuple[str, float]]:
        """Parts of the step by what ours saves in them (over the time of theirs), most first."""
        theirs, ours = self.nearest.step_time, self.ours.plans[0].step_time
        whole = float(theirs.total_s)
        saved = {
            part: float(getattr(theirs, f"{part}_s") - getattr(ours, f"{part}_s")) / whole
            for part in CAUSES
        }
        return sorted(saved.items(), key=lambda item: -item[1])


def _claim(theirs: Plan, ours: Plan) -> float:
    return float(theirs.step_time.total_s) / float(ours.step_time.total_s) - 1


@cache
def collection() -> Mapping[str, Any]:
    """The data file."""
    data: Mapping[str, Any] = yaml.safe_load(DATA.read_text())
    return data


def experts(names: Iterable[str] = ()) -> list[Expert]:
    """Every row, or those that are named."""
    rows = collection()["layouts"]
    return [_expert(name, rows[name]) for name in names or rows]


def believed() -> dict[str, str]:
    """By row, why a claim of over 10 % is believed."""
    return {name: entry["because"] for entry in collection()["believed"] for name in entry["rows"]}


def _expert(name: str, row: Mapping[str, Any]) -> Expert:
    data = collection()
    known = {f.name for f in fields(Pins)}
    spec = {
        "name": name,
        "framework": row.get("framework", "megatron-lm"),
        "model": data["models"].get(row["model"], row["model"]),
        "cluster": data["clusters"][row["cluster"]],
        "gpus": row["gpus"],
        "megatron_version": row.get("megatron_version", dots(NEWEST["megatron-core"])),
        "training": row["training"],
        "launch": {"target": "slurm", "script": "train.py"},
    }
    said = row["layout"]
    return Expert(
        name=name,
        row=row,
        spec=spec,
        pins={key: value for key, value in said.items() if key in known},
        unread=tuple(key for key in said if key not in known),
    )


def job_of(expert: Expert, *, pinned: bool) -> Job:
    """The job of a row: with what it says of the layout and no margin of memory, or free with the
    default margin.
    """
    theirs = {"layout": dict(expert.pins), "memory": {"headroom": 0}}
    return dsgen.load_job({**expert.spec, **(theirs if pinned else {})})


def left_then(expert: Expert) -> list[dict[str, Any]]:
    """Pins, one of which every layout kept to when the row was made, as its program lacked what
    came later.

    Of the options that a key of the layout needs, the earliest that was missing counts. What the
    row uses was there.
    """
    left: dict[str, list[dict[str, Any]]] = {}
    for entry in (
        collection()["since"].get(expert.spec["framework"], ()) if "made" in expert.row else ()
    ):
        ways = entry["left"]
        key = next(iter(ways[0]))
        used = key in expert.pins and expert.pins[key] not in [way[key] for way in ways]
        if str(entry["day"])[:7] > expert.row["made"] and not used:
            left.setdefault(key, ways)
    return [
        {key: value for way in ways for key, value in way.items()}
        for ways in product(*left.values())
    ]


def compare(expert: Expert) -> Comparison:
    """Plan one row both ways."""
    pinned = job_of(expert, pinned=True)
    theirs = dsgen.search(pinned, top=1, bold=True)  # it ran, however near to the card's edge
    best = theirs.plans[0] if theirs.plans else getattr(theirs, "nearest", None)
    return Comparison(
        expert=expert,
        theirs=theirs,
        nearest=best or dsgen.estimate(pinned),
        ours=dsgen.search(job_of(expert, pinned=False), top=1),
        then=_then(expert),
    )


def _then(expert: Expert) -> tuple[Plan, Plan] | None:
    """Theirs and ours, the fastest of those that keep to one of the ways that were left, if some
    were not.
    """
    if (left := left_then(expert)) == [{}]:
        return None
    theirs, ours = [], []
    for way in left:
        ours += dsgen.search(dsgen.load_job({**expert.spec, "layout": way}), top=1).plans
        if all(expert.pins.get(key, value) == value for key, value in way.items()):
            same = replace(expert, pins={**way, **expert.pins})
            theirs += dsgen.search(job_of(same, pinned=True), top=1, bold=True).plans
    first, second = (
        min(plans, key=lambda plan: float(plan.step_time.total_s)) for plans in (theirs, ours)
    )
    return first, second


def table(found: Iterable[Comparison]) -> Iterator[str]:
    """Every row, both ways."""
    yield "| layout | theirs | s | GiB | ours | s | GiB | claim | then | because of |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for c in found:
        refused = f"**{c.refused_by}** " if c.refused_by else ""
        ours = (
            _cells(c.ours.plans[0])
            if c.ours.plans
            else f"none ({getattr(c.ours, 'binding_rule', '')}) | | "
        )
        claim = "–" if c.claim is None else f"{c.claim:+.0%}"
        then = f"{c.claim_then:+.0%}" if c.then else ""
        yield (
            f"| {c.expert.name} | {refused}{_cells(c.nearest)} | {ours} | {claim} | "
            f"{then} | {_because(c)} |"
        )


def _cells(plan: Plan) -> str:
    seconds, size = plan.step_time.total_s, plan.memory.required_bytes / GIB
    details = " ".join((layout_text(plan), *_details(plan.layout)))
    return f"{details} | {seconds:.3g} | {size:.0f} of {plan.memory.capacity_bytes / GIB:.0f}"


def _details(layout: Layout) -> Iterator[str]:
    """Return what `layout_text` leaves out, where it is not the default."""
    if layout.recompute is Recompute.FULL and layout.recompute_layers:
        yield f"({layout.recompute_layers} layers)"
    if layout.recompute is Recompute.SELECTIVE:
        yield f"({' '.join(layout.to_dict()['recompute_modules'])})"
    if layout.expert > 1 and layout.expert_tensor > 1:
        yield f"ETP{layout.expert_tensor}"
    yield from (name for name in ("tensor_overlap", "expert_overlap") if getattr(layout, name))
    yield from (f"{name} {getattr(layout, name)}" for name in SIZES if getattr(layout, name) > 1)
    if layout.offload_fraction < 1 and layout.offload is not Offload.NONE:
        yield f"of {layout.offload_fraction:.0%}"


def _because(c: Comparison) -> str:
    if c.claim is None or c.claim <= CLAIM / 2:
        return ""
    return ", ".join(f"{part} {saved:+.0%}" for part, saved in c.causes() if abs(saved) >= 0.02)


def summary(found: list[Comparison], known: Mapping[str, str] | None = None) -> Iterator[str]:
    """Return how many are refused, by what; the claims, with the reasons that are known."""
    refused = [c for c in found if c.refused_by]
    legal = [c.claim for c in found if not c.refused_by and c.claim is not None]
    by_rule = Counter(c.refused_by for c in refused)
    yield f"{len(found)} layouts; {len(refused)} called impossible: {dict(by_rule)}"
    for c in refused:
        yield (
            f"- {c.expert.name}: {c.refused_by}; "
            f"{'; '.join(_messages(c.nearest)) or 'no completion'}"
        )
    above = [c for c in found if not c.refused_by and (c.claim or 0) > CLAIM]
    parts = Counter(c.causes()[0][0] for c in above)
    yield (
        f"Claims over the {len(legal)} others: median {statistics.median(legal):+.1%}, "
        f"most {max(legal):+.0%}."
    )
    own = [
        c.claim
        for c in found
        if c.claim is not None and not c.refused_by and "program" not in c.expert.row
    ]
    yield (
        f"Of these, {len(own)} are planned for the program that ran them: median "
        f"{statistics.median(own):+.1%}."
    )
    then = [c.claim_then for c in found if not c.refused_by and c.claim_then is not None]
    older = sum(c.then is not None for c in found)
    yield (
        f"With what {older} programs could do when the layout was made: median "
        f"{statistics.median(then):+.1%}."
    )
    yield f"{len(above)} are over {CLAIM:.0%}, by the largest cause: {dict(parts.most_common())}"
    known = believed() if known is None else known
    for c in sorted(above, key=lambda c: -(c.claim or 0)):
        yield f"- {c.expert.name} {c.claim:+.0%}: {known.get(c.expert.name, 'not explained')}"


def _messages(plan: Plan) -> list[str]:
    return [f"{f.rule} {f.message}" for f in plan.findings if f.severity is Severity.ERROR]


def main() -> None:
    """Print the tables."""
    found = [compare(expert) for expert in experts(sys.argv[1:])]
    print("\n".join(table(found)), end="\n\n")
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
