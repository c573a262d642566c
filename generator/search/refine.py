"""Details that only trade memory for time, or hide one kind of communication: turned where they can
matter.

The enumeration leaves them at their defaults. The best layouts with them are found by branch and
bound. The bound of a layout is its step time less all that its details could still save; it is
refined only where that is within reach of the layouts with a name or a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataclass import dataclass
from ..estimate.layout import (
    DEFAULTS,
    FIELDS,
    Layouts,
    Offload,
    Recompute,
    as_column,
    rising,
    taken,
)
from ..estimate.memory import memory
from ..estimate.stages import end_layers, inner_layers, layers_of, split
from ..findings import Severity
from ..job.records import Job
from ..rules.layout.identities import pinned_values
from ..rules.layout.pipeline import chunk_values
from ..rules.layout.recompute import module_choices
from ..rules.run import binding_rules
from ..rules.violations import divisors
from .choice import deciding_s, first_of_each, ranking, shown_keys
from .enumerate import Enumeration, enumerates_chunks, full_chunks, joined, joined_column
from .feasible import (
    Estimates,
    Feasible,
    Floats,
    chunks,
    estimates,
    fitting,
    joined_estimates,
    roomy_bytes,
    step_seconds,
    with_memory,
)

Settings = Iterator[Mapping[str, Any]]
#: Numbers of model chunks of a stage, by the number of stages; 1 is the first.
ChunkValues = Callable[[Job, int], Sequence[int]]
#: Shares of a chunk's layers that are repeated, and of the optimizer's states that are moved.
_QUARTERS = (0.25, 0.5, 0.75)


def chunk_counts(job: Job, rows: Layouts, values: ChunkValues = chunk_values) -> NDArray[np.int64]:
    """The numbers of model chunks of each layout, a row for each, filled up with 1."""
    stages, number = np.unique(rows.pipeline, return_inverse=True)
    layers = job.model.layers
    counts = [values(job, int(count)) if 1 < count <= layers else [1] for count in stages]
    most = max(map(len, counts), default=1)
    filled = [[*each, *[1] * (most - len(each))] for each in counts]
    columns: NDArray[np.int64] = np.array(filled, np.int64).reshape(-1, most)[number]
    return columns


def _other_chunks(job: Job, pipeline: int) -> list[int]:
    """All other chunk counts, after 1."""
    return [1, *sorted({*chunk_values(job, pipeline)} - {*full_chunks(job, pipeline)})]


def recompute_choices(job: Job, rows: Layouts) -> Settings:
    """Parts of every layer, from the least that is repeated; then every part of some layers of a
    chunk.
    """
    for modules in module_choices(job):
        yield {"recompute": Recompute.SELECTIVE, "recompute_modules": modules}
    held = inner_layers(job, rows) / rows.virtual_pipeline
    for share in _QUARTERS:
        count = np.ceil(share * held).astype(np.int64)
        yield {"recompute": Recompute.FULL, "recompute_layers": np.where(count < held, count, 0)}


def head_choices(job: Job, rows: Layouts) -> Settings:
    """Every number of ranks that can share out the heads."""
    for heads in divisors(job.model.kv_heads)[1:]:
        yield {"context_heads": np.where(rows.context % heads == 0, heads, 1)}


def copy_choices(job: Job, rows: Layouts) -> Settings:
    """A few copies: each is that much of the optimizer's states more."""
    group = rows.data * rows.context
    for copies in (2, 4, 8):
        yield {
            "zero_copies": np.where(
                (group % copies == 0) & (group > copies) & (rows.zero_stage > 0), copies, 1
            )
        }


def chunk_choices(job: Job, rows: Layouts, values: ChunkValues = chunk_values) -> Settings:
    """Model chunks of every size, or of some."""
    for counts in chunk_counts(job, rows, values).T[1:]:
        yield {"virtual_pipeline": counts}


#: Share of the time that a detail has to save to be worth its place in a plan; less would be lost
#: in any estimate.
_LEAST_GAIN = 0.001
#: So little memory, in bytes, that nothing but the estimate makes the expected time.
_NOTHING = 1.0
#: Rows that are refined as far as the first: more than a screen has.
_MOST_ROWS = 10
#: Layouts that are refined before it is known better what the others have to reach.
_FIRST_WAVE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One detail of a layout that the enumeration leaves alone."""

    #: the fields that it sets; where all of them are pinned, the detail is the user's
    turns: tuple[str, ...]
    settings: Callable[[Job, Layouts], Settings]
    saves: str  #: the cause of the step time that it can shorten
    #: a field that it needs turned: what turns that may cost as much as this one saves
    needs: str = ""
    replaces: Mapping[str, Any] = field(default_factory=dict)  #: values for which it does a part
    #: the fastest and largest that it can come to
    largest: Mapping[str, Any] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)  #: where it is on or off: on

    def within(self, pins: Mapping[str, Any]) -> Detail:
        """The detail with the settings that some pinned fields leave."""
        if not pins:
            return self

        def kept(job: Job, rows: Layouts) -> Settings:
            for setting in self.settings(job, rows):
                if all(np.all(setting.get(name, pin) == pin) for name, pin in pins.items()):
                    yield setting

        largest = {n: value for n, value in self.largest.items() if pins.get(n, value) == value}
        return replace(self, settings=kept, largest=largest)


def _node_choices(job: Job, rows: Layouts) -> Settings:
    """A second copy over the ranks of a node, where it is on the device."""
    ranks = job.cluster.accelerators_per_node
    useful = (rows.zero_stage >= 3) & (rows.data * rows.context > ranks)
    yield {"zero_hpz": np.where(useful & (rows.offload <= Offload.OPTIMIZER), ranks, 1)}


def _switch(name: str, *, saves: str, needs: str = "") -> Detail:
    """A detail that is on or off."""
    on = {name: True}
    return Detail(
        turns=(name,), settings=lambda job, rows: iter([on]), saves=saves, needs=needs, best=on
    )


#: In this order. Those that trade memory for time come first, and all that they make is kept, for
#: others need memory.
DETAILS: tuple[Detail, ...] = (
    Detail(
        turns=("recompute", "recompute_layers", "recompute_group", "recompute_modules"),
        settings=recompute_choices,
        saves="recompute_s",
        replaces={"recompute": Recompute.FULL},
        largest={"recompute": Recompute.NONE},
    ),
    Detail(
        turns=("offload", "offload_fraction"),
        settings=lambda job, rows: (
            {"offload": Offload.OPTIMIZER, "offload_fraction": share} for share in _QUARTERS
        ),
        saves="offload_s",
        replaces={"offload": Offload.OPTIMIZER},
        largest={"offload": Offload.NONE},
    ),
    _switch("tensor_overlap", saves="tensor_s"),
    _switch("expert_overlap", saves="expert_s", needs="virtual_pipeline"),
    Detail(turns=("context_heads",), settings=head_choices, saves="context_s"),
    Detail(turns=("zero_copies",), settings=copy_choices, saves="data_s"),
    Detail(turns=("zero_hpz",), settings=_node_choices, saves="data_s"),
)


def _chunks(values: ChunkValues) -> Detail:
    """Model chunks of some sizes, as a detail."""
    return Detail(
        turns=("virtual_pipeline",),
        settings=lambda job, rows: chunk_choices(job, rows, values),
        saves="pipeline_s",
    )


#: Chunks of equal size come first, and are often the best: with what they reach, few layouts are
#: left that others could make better. The others have to gain.
_FULL_CHUNKS, _OTHER_CHUNKS = _chunks(full_chunks), _chunks(_other_chunks)


#: Fields that the enumeration leaves at their defaults, and details turn.
DETAILED = frozenset({"virtual_pipeline", *(name for each in DETAILS for name in each.turns)})
_OF_ALL = frozenset({"recompute", "offload"})  #: fields that every engine turns


def open_details(job: Job) -> list[Detail]:
    """The details that the job's engine has and its user left open."""
    pins = pinned_values(job.pins)
    mine = (d for d in DETAILS if job.engine.has(*{*d.turns} - _OF_ALL))
    open_ones = (d for d in mine if any(getattr(job.pins, name) is None for name in d.turns))
    return [d.within({name: pins[name] for name in d.turns if name in pins}) for d in open_ones]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The times up to which a layout can have a name or a row, from all that was found so far.

    The ratio of a layout's expected time to its estimate is taken to be the same with its details:
    few of them make a layout smaller, and none makes its kind a measured one.
    """

    job: Job
    bold: bool
    #: whether the fastest of all, and of those that need four fifths of the card, are asked for
    names: bool = True
    fastest: float = np.inf
    roomy: float = np.inf  #: the fastest that needs four fifths of the card
    #: The best rows to be shown that were found, by what decides, and what each shows of its
    #: layout.
    shown_s: Floats
    shown_keys: NDArray[np.int64]

    def holds(self, rows: Estimates, least_s: Floats) -> NDArray[np.bool_]:
        """Find rows that may get a name or a row of their own, when their times can't fall below
        `least_s`.
        """
        least = least_s if self.bold else least_s * (rows.expected_s / rows.total_s)
        shown = self._is_shown(rows, least)
        if not self.names:
            return shown
        roomy = rows.required_bytes <= roomy_bytes(self.job)
        named = (least_s <= self.fastest) | (roomy & (least_s <= self.roomy))
        return np.asarray(named | shown, np.bool_)

    def _is_shown(self, rows: Estimates, least: Floats) -> NDArray[np.bool_]:
        """Find rows that would be shown with the deciding seconds `least`: of rows that show the
        same of their layout, the best one is.
        """
        last = self.shown_s.max(initial=0) if len(self.shown_s) else np.inf
        shown = np.asarray(least <= last, np.bool_)
        order = np.argsort(self.shown_keys)
        best_s, best_keys = self.shown_s[order], self.shown_keys[order]
        if not len(order) or np.any(best_keys[1:] == best_keys[:-1]):
            return shown

        near = np.flatnonzero(shown)
        keys = shown_keys(rows, near)
        place = np.minimum(np.searchsorted(best_keys, keys), len(best_keys) - 1)
        shown[near] = (best_keys[place] != keys) | (least[near] <= best_s[place])
        return shown

    def barely_named(self, rows: Estimates, gain: float) -> NDArray[np.bool_]:
        """Find rows that would take a name from a plan that is slower by less than `gain` alone.

        If such a layout were kept because it is shown as a row, names would depend on how many rows
        are shown.
        """
        roomy_s = np.where(rows.required_bytes <= roomy_bytes(self.job), rows.total_s, np.inf)
        named = ((rows.total_s, self.fastest), (roomy_s, self.roomy)) if self.names else ()
        chosen = (deciding_s(rows, bold=self.bold), self.shown_s.min(initial=np.inf))
        takes, gains = np.zeros((2, len(rows.total_s)), np.bool_)
        for seconds, best_s in (chosen, *named):
            takes |= seconds < best_s
            gains |= seconds <= (1 - gain) * best_s
        return np.asarray(takes & ~gains, np.bool_)

    def less(self, gain: float) -> Reach:
        """The reach of what is better by a share `gain` than all that was found."""
        left = 1 - gain
        named = replace(self, fastest=left * self.fastest, roomy=left * self.roomy)
        return replace(named, shown_s=left * self.shown_s)

    def after(self, rows: Estimates) -> Reach:
        """The reach once these rows were found too."""
        roomy = rows.total_s[rows.required_bytes <= roomy_bytes(self.job)]
        seconds = deciding_s(rows, bold=self.bold)
        better = np.flatnonzero(seconds < self.shown_s.max(initial=0))
        all_s = np.concatenate([self.shown_s, seconds[better]])
        all_keys = np.concatenate([self.shown_keys, shown_keys(rows, better)])
        order = np.argsort(all_s, kind="stable")
        firsts = order[first_of_each(all_keys[order])]
        count = len(self.shown_s)  # where too few layouts differ, their details are shown
        best = firsts[:count] if len(firsts) >= count else order[:count]
        return replace(
            self,
            fastest=min(self.fastest, float(rows.total_s.min(initial=np.inf))),
            roomy=min(self.roomy, float(roomy.min(initial=np.inf))),
            shown_s=all_s[best],
            shown_keys=all_keys[best],
        )


def _reach(job: Job, estimated: Estimates, top: int, bold: bool, names: bool) -> Reach:
    """What to refine for, before anything is: at least as good as the `top` best without
    details.
    """
    rows = np.array(ranking(estimated, min(top, _MOST_ROWS), bold=bold))
    start = Reach(
        job=job,
        bold=bold,
        names=names,
        shown_s=deciding_s(estimated, bold=bold)[rows],
        shown_keys=shown_keys(estimated, rows),
    )
    return start.after(estimated)


def refined(
    job: Job, feasible: Feasible, *, top: int, bold: bool = False, names: bool = True
) -> Feasible:
    """Add the layouts with details that can be among the `top` best, or, where `names` are asked
    for, the fastest.

    The most promising layouts are refined first, since their times show which others can't come
    near.
    """
    return feasible.extended(*_refinements(job, feasible, top, bold, names))


def turned(job: Job, estimated: Estimates) -> Estimates:
    """Layouts that fit, and those with details that can be the best of them."""
    made = _refinements(job, estimated, 1, bold=False, names=False)
    return joined_estimates([estimated, *made])


def _refinements(
    job: Job, feasible: Estimates, top: int, bold: bool, names: bool
) -> list[Estimates]:
    """Layouts with details, made of some, that can be among the best."""
    if not len(feasible.layouts):
        return []
    details, reach = open_details(job), _reach(job, feasible, top, bold, names)
    rows = feasible.take(reach.holds(feasible, _floor_with_chunks(job, feasible, details)))
    if not len(rows.total_s):
        return []
    least = _floor_at(job, rows, _fastest(job, rows, details), details)
    order = np.argsort(least, kind="stable")
    made: list[Estimates] = []
    waves = (
        (order[:_FIRST_WAVE], _FULL_CHUNKS),
        (order[_FIRST_WAVE:], _FULL_CHUNKS),
        (order, _OTHER_CHUNKS),
    )
    for cut, chunked in waves:
        wave = rows.take(cut)
        held = reach.holds(wave, least[cut])
        if not held.any():
            continue
        wave, before = wave.take(held), reach
        if chunked is _OTHER_CHUNKS:
            reach = reach.less(_LEAST_GAIN)
        least_reach = reach
        for better in _with_turned(job, wave, details, reach, chunked):
            if chunked is _OTHER_CHUNKS:
                gains = least_reach.holds(better, better.total_s)
                better = better.take(gains & ~before.barely_named(better, _LEAST_GAIN))
            reach = reach.after(better)
            made.append(better)
    return made


def lowest_s(job: Job, estimated: Estimates) -> float:
    """A lower bound of the step times of some layouts with any details, in seconds.

    It is looser than `least_s`, and found at once.
    """
    return float(_floor_with_chunks(job, estimated, open_details(job)).min())


def least_s(job: Job, estimated: Estimates) -> float:
    """A lower bound of the step times of some layouts with any details, in seconds."""
    details = open_details(job)
    return float(_floor_at(job, estimated, _fastest(job, estimated, details), details).min())


def _cuts_chunks(job: Job) -> bool:
    """Ask whether stages may be cut into model chunks."""
    return job.pins.virtual_pipeline is None and job.engine.has("virtual_pipeline")


def _uncut(job: Job, estimated: Estimates, chunked: Detail) -> Estimates:
    """The layouts of several stages of which the model chunks are to be turned: one of those that
    differ in these alone.
    """
    if not _cuts_chunks(job) or (chunked is _FULL_CHUNKS and enumerates_chunks(job)):
        return estimated.take(slice(0))
    rows = np.flatnonzero(estimated.layouts.pipeline > 1)
    if enumerates_chunks(job) and len(rows):
        names = (name for name in FIELDS if name != "virtual_pipeline")
        others = [np.asarray(getattr(estimated.layouts, name)[rows], float) for name in names]
        rows = rows[np.sort(np.unique(np.stack(others), axis=1, return_index=True)[1])]
    return estimated.take(rows)


def _fastest(job: Job, rows: Estimates, details: Sequence[Detail]) -> dict[str, Any]:
    """Values with which layouts are the fastest, whatever memory that takes."""
    values = _largest(details)
    if _cuts_chunks(job):
        values["virtual_pipeline"] = chunk_counts(job, rows.layouts).max(axis=1, initial=1)
    return values


def _with_turned(
    job: Job, estimated: Estimates, details: Sequence[Detail], reach: Reach, chunked: Detail
) -> list[Estimates]:
    """Turn the details of layouts as far as the result is within reach."""
    hiding = [d for d in details if not d.replaces]
    # All these numbers of model chunks, for each leaves other memory to the rest.
    staged = _uncut(job, estimated, chunked)
    again = chunked is _OTHER_CHUNKS  # what has one chunk was turned before
    made = [estimated.take(slice(0)) if again else estimated]
    made.append(_made(job, staged, chunked, details, reach)[0])
    reach = reach.after(made[-1])
    for detail in (d for d in details if d.replaces):
        made.append(_traded(job, joined_estimates(made), detail, details, reach))
        reach = reach.after(made[-1])
    tops = joined_estimates(rows.take(reach.holds(rows, _floor(rows, hiding))) for rows in made)
    if len(tops.total_s):
        tops = tops.take(reach.holds(tops, _floor_at(job, tops, {}, hiding)))
    for number, detail in enumerate(hiding):
        if not len(tops.total_s):
            break
        later = hiding[number + 1 :]
        better, rows = _hidden(job, tops, detail, later, reach)
        made.append(better)
        replaced = np.zeros(len(tops.total_s), np.bool_)
        replaced[rows[_replaces(job, better, tops.take(rows), later)]] = True
        tops = joined_estimates([tops.take(~replaced), better])
        tops = tops.take(reach.holds(tops, _floor(tops, later)))
    return made[1:]


def _replaces(
    job: Job, better: Estimates, former: Estimates, later: Sequence[Detail]
) -> NDArray[np.bool_]:
    """Find layouts with a detail that leave no name and no row to the same ones without it.

    The smaller one may still be roomy, or come out ahead by a later detail that isn't combined with
    this one.
    """
    room, floor = roomy_bytes(job), _floor(former, later)
    roomy = (former.required_bytes <= room) & (better.required_bytes > room)
    surer = floor * (former.expected_s / former.total_s) < better.expected_s
    return np.asarray(~(roomy | surer | (floor < better.total_s)), np.bool_)


def _floor(estimated: Estimates, details: Iterable[Detail]) -> Floats:
    """Least time of layouts when all that these details can save is saved."""
    return estimated.total_s - sum(estimated.savable[cause] for cause in _saved(details))


def _saved(details: Iterable[Detail]) -> dict[str, None]:
    """The causes that some of these details shorten."""
    return dict.fromkeys(detail.saves for detail in details)


def _floor_with_chunks(job: Job, estimated: Estimates, details: Sequence[Detail]) -> Floats:
    """Least time of layouts when all is saved that these details and model chunks can save."""
    floor = _floor(estimated, details)
    if not _cuts_chunks(job):
        return floor
    least = floor * (1 - estimated.savable["bubble_s"] / estimated.total_s)
    return np.asarray(least * _evened(job, estimated.layouts), np.float64)


def _floor_at(
    job: Job, rows: Estimates, values: Mapping[str, Any], details: Sequence[Detail]
) -> Floats:
    """Least time of layouts with `values`.

    Switches are on or off, each as it is the fastest: one may cost more than it hides. Other
    details save all that they can.
    """
    others = [detail for detail in details if not detail.best]
    is_chunked = "virtual_pipeline" in values
    if is_chunked:
        others.append(_FULL_CHUNKS)
    floor: Floats = np.full(len(rows.total_s), np.inf)
    for switched in _switched(details):
        columns = with_columns(rows.layouts, {**switched, **values})
        total_s, savable = step_seconds(job, columns, _saved(others))
        floor = np.minimum(floor, total_s - sum(savable.values()))
    return floor * _evened(job, with_columns(rows.layouts, values)) if is_chunked else floor


def _switched(details: Sequence[Detail]) -> Iterator[dict[str, Any]]:
    """Every combination of the details that are on or off: all on first."""
    switches = [(name, value) for d in details for name, value in d.best.items()]
    for values in product(*((value, DEFAULTS[name]) for name, value in switches)):
        yield dict(zip((name for name, _ in switches), values, strict=True))


def _evened(job: Job, rows: Layouts) -> Floats:
    """The share of each layout's pace that is left with the number of model chunks that shares out
    layers and head most evenly.

    Beside a large head these aren't always the smallest chunks.
    """
    _, first, number = np.unique(rows.pipeline, return_index=True, return_inverse=True)
    most_even = []
    for place in first:
        row = rows.take(np.array([place]))
        counts = chunk_counts(job, row)[0]
        cut = with_columns(row.take(np.zeros(len(counts), np.int64)), {"virtual_pipeline": counts})
        most_even.append(_pace(job, cut).min())
    share: Floats = np.array(most_even)[number] / _pace(job, rows)
    return np.minimum(share, 1.0)


def _pace(job: Job, rows: Layouts) -> Floats:
    """Layers of the slowest stage, the head among them."""
    cut = split(job, rows)
    fullest = np.maximum(layers_of(cut, rows, 0), layers_of(cut, rows, 1 * (rows.pipeline > 2)))
    last = layers_of(cut, rows, rows.pipeline - 1) + end_layers(job)
    return np.asarray(np.maximum(fullest, last), np.float64)


def _largest(details: Iterable[Detail]) -> dict[str, Any]:
    """Values of a layout that gives no time for memory."""
    return {name: value for d in details for name, value in d.largest.items()}


def _traded(
    job: Job, estimated: Estimates, detail: Detail, details: Sequence[Detail], reach: Reach
) -> Estimates:
    """Layouts that do in part what others do wholly.

    The others fit, and wouldn't leave the roomy share of the card free if they did none of it.
    """
    whole = np.all(
        [getattr(estimated.layouts, name) == value for name, value in detail.replaces.items()],
        axis=0,
    )
    if not whole.any():
        return estimated.take(slice(0))
    rows = estimated.take(whole & reach.holds(estimated, _floor(estimated, details)))
    if not len(rows.total_s):
        return rows
    rows = rows.take(reach.holds(rows, _floor_at(job, rows, _largest(details), details)))
    if not len(rows.total_s):
        return rows
    if detail.largest:
        largest = memory(job, with_columns(rows.layouts, _largest(details)))
        needs_some = largest.required_bytes > roomy_bytes(job)
        rows = rows.take(np.broadcast_to(needs_some, len(rows.total_s)))
    return _made(job, rows, detail, details[details.index(detail) + 1 :], reach)[0]


def _hidden(
    job: Job, tops: Estimates, detail: Detail, later: Sequence[Detail], reach: Reach
) -> tuple[Estimates, NDArray[np.int64]]:
    """Of each layout that the detail makes faster, the variants of the least time and of the least
    expected time; and the places of the layouts that they were made of.
    """
    matters = np.flatnonzero(tops.savable[detail.saves] > _LEAST_GAIN * tops.total_s)
    if not len(matters):
        return tops.take(matters), matters
    made, at = _made(job, tops.take(matters), detail, later, reach, gain=_LEAST_GAIN)
    best = []
    for seconds in (made.total_s, made.expected_s):
        order = np.lexsort((seconds, at))
        best.append(order[np.unique(at[order], return_index=True)[1]])
    both = rising(np.concatenate(best))
    return made.take(both), matters[at[both]]


def _made(
    job: Job,
    rows: Estimates,
    detail: Detail,
    later: Iterable[Detail],
    reach: Reach,
    *,
    gain: float = 0.0,
) -> tuple[Estimates, NDArray[np.int64]]:
    """Every legal layout that a detail makes of some, that fits and is faster; and for each the row
    that it was made of.

    It is faster by more than `gain`, where what details that need this one can save counts as
    saved. And it is within reach with all that the `later` details can save.
    """
    later = [*later]
    needing = [each for each in later if each.needs in detail.turns]
    if not len(rows.total_s):
        return rows, np.zeros(0, np.int64)
    settings = [
        (turned, np.flatnonzero(differs))
        for turned, differs in _legal_settings(job, rows.layouts, detail)
        if differs.any()
    ]
    if not settings:
        return rows.take(slice(0)), np.zeros(0, np.int64)
    at = np.concatenate([places for _, places in settings])
    # Only the columns that the detail sets differ from those of the rows that it is turned on.
    columns = {
        name: joined_column([taken(getattr(turned, name), places) for turned, places in settings])
        for name in detail.turns
    }
    every = with_columns(rows.layouts.take(at), columns)
    parts = []
    for cut in chunks(len(at)):
        # The time alone rules out most: only for the others is it asked what they need.
        timed, places = estimates(job, every.take(cut), _NOTHING, _NOTHING), at[cut]
        faster = _floor(timed, needing) < rows.total_s[places] * (1 - gain)
        faster &= reach.holds(timed, _floor(timed, later))
        if not faster.any():
            continue
        timed, places = timed.take(faster), places[faster]

        fits, ledger = fitting(job, timed.layouts)
        timed, places = timed.take(fits), places[fits]
        timed = with_memory(job, timed, ledger.required_bytes[fits], ledger.device_bytes[fits])
        useful = reach.holds(timed, _floor(timed, later))
        parts.append((timed.take(useful), places[useful]))
    if not parts:
        return rows.take(slice(0)), np.zeros(0, np.int64)
    made = joined_estimates(part for part, _ in parts)
    return made, np.concatenate([places for _, places in parts])


def _legal_settings(
    job: Job, rows: Layouts, detail: Detail
) -> Iterator[tuple[Layouts, NDArray[np.bool_]]]:
    """Each setting of a detail on all rows, and which of these it changes and no rule removes."""
    rules = [rule for rule in binding_rules(job) if rule.severity is Severity.ERROR]
    rules = [rule for rule in rules if not set(detail.turns).isdisjoint(rule.columns.reads)]
    for setting in detail.settings(job, rows):
        turned = with_columns(rows, setting)
        differs = np.any([getattr(rows, name) != getattr(turned, name) for name in setting], axis=0)
        for rule in rules:
            differs = differs & np.asarray(rule.allows(job, turned), np.bool_)
        yield turned, differs


def open_fields(job: Job) -> frozenset[str]:
    """The fields of a layout that a search decides: its pins leave them more than one legal value.

    What the card holds isn't asked.
    """
    rows = joined(Enumeration(job))
    if not len(rows):
        return frozenset()

    details = [*open_details(job)]
    if job.pins.virtual_pipeline is None and _cuts_chunks(job):
        details += [_FULL_CHUNKS, _OTHER_CHUNKS]
    varying = set(_varying(rows, rows, np.ones(len(rows), np.bool_)))
    for detail in details:
        for table, legal in _legal_settings(job, rows, detail):
            if varying.issuperset(detail.turns):
                break
            varying.update(_varying(rows, table, legal))
    return frozenset(varying)


def _varying(rows: Layouts, table: Layouts, legal: NDArray[np.bool_]) -> Iterator[str]:
    """The fields of which a legal row of a table has another value than the first of `rows`."""
    for name in FIELDS:
        if np.any(getattr(table, name)[legal] != getattr(rows, name)[0]):
            yield name


def with_columns(rows: Layouts, values: Mapping[str, Any]) -> Layouts:
    """The rows with other values in some columns."""
    columns = {name: getattr(rows, name) for name in FIELDS}
    return Layouts(
        **{**columns, **{name: as_column(value, len(rows)) for name, value in values.items()}}
    )
