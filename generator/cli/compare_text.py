"""Comparisons as text, two plans side by side, by cause; and the smaller counts of a plan that loses nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..estimate.layout import details, dimensions, in_words
from ..estimate.uncertainty import MFU_NOTE, band_note, gib_with_band, percent, seconds_with_band
from ..job.wording import in_spec
from ..search.compare import Cause, Comparison, Difference
from ..search.elastic import SMALLEST_SHARE, Spares
from ..search.plan import Plan
from ..units import GIB, gib, same_unit, seconds
from .printing import ASIDE, BAD, BOLD
from .tables import Column, Lines, Part, Table, Text, numbers, whole, words


def comparisons(best: Plan | None, answers: Sequence[Comparison]) -> Iterator[Part]:
    """The chosen plan and the answer to each question, then a table of those that have a plan."""
    step = best and seconds_with_band(best.step_time.total_s, best.uncertainty.step_time)
    chosen = [("Chosen", f"{in_words(best.layout, brief=True)}, {step} per step")] if best else []
    asked = ["Asked"] if len(answers) == 1 else [f"Asked {number}" for number in range(1, len(answers) + 1)]
    verdicts = (line for each, name in zip(answers, asked, strict=True) for line in _verdict(each, name))
    yield Lines([*chosen, *verdicts])
    shown = [each.difference if each.verdict != "same" else None for each in answers]
    if known := [each for each in shown if each]:
        alone = f"in brackets: {band_note(known[0].ours.uncertainty)}; " if len(known) == 1 else ""
        yield from ("", _side_by_side(shown), "", Text(f"{alone}{MFU_NOTE}", ASIDE))


def _verdict(answer: Comparison, name: str) -> Iterator[tuple[str, str | Text]]:
    """What was asked and the answer, with hints and warnings."""
    good = answer.verdict not in ("forbidden", "too large")
    asked = ", ".join(f"{key} {'open' if value is None else in_spec(value)}" for key, value in answer.asked.items())
    yield name, Text(f"{asked}: {answer.text}", style=BOLD if good else BAD)
    if answer.difference is None and answer.theirs is not None and answer.verdict != "same":
        yield "", f"{in_words(answer.theirs.layout)}: {seconds(answer.theirs.step_time.total_s)} per step"
    yield from dict.fromkeys(("", f"hint: {finding.hint}") for finding in answer.findings if finding.hint)
    if answer.findings and answer.kept:
        yield "", f"note: the job pins {', '.join(answer.kept)}; KEY=null in the question leaves one open"
    for finding in answer.warnings:
        yield "", f"warning: {finding.message} [{finding.rule}]"


def _side_by_side(asked: Sequence[Difference | None]) -> Table:
    """What differs of decisions, time and memory: ours and theirs; of one question, the differences and ranges too."""
    shown = [each for each in asked if each]
    ours, alone = shown[0].ours, len(shown) == 1
    numbered = (f"asked {number}" for number, each in enumerate(asked, start=1) if each)
    names = ["asked"] if len(asked) == 1 else [*numbered]
    columns = [Column(heading=name, right=not alone, least=12 if alone else 9) for name in ("chosen", *names)]
    table = Table(whole(), *columns, *([numbers("difference")] if alone else []))
    plans = [ours, *(each.theirs for each in shown)]
    cells = [{**dimensions(plan.layout), "also": ", ".join(details(plan.layout)) or "nothing"} for plan in plans]
    for name in cells[0]:
        if len({each[name] for each in cells}) > 1:
            table.add_row(name, *(each[name] or {"ZeRO": "0", "recompute": "none"}.get(name, "1") for each in cells))
    steps = [(plan.step_time.total_s, plan.uncertainty.step_time) for plan in plans]
    slower = [f"{100 * shown[0].slowdown:+.1f}%"] if alone else []
    table.add_row("step time", *(seconds_with_band(*each) if alone else seconds(each[0]) for each in steps), *slower)
    _add_causes(table, [each.time for each in shown], lambda size: f"{size:,.2f} s", 1.0, alone)
    table.add_row("MFU", *(percent(plan.throughput.mfu) for plan in plans))
    needs = [(plan.memory.required_bytes, plan.uncertainty.required) for plan in plans]
    table.add_row("memory", *(gib_with_band(*each) if alone else f"{gib(each[0])} GiB" for each in needs))
    _add_causes(table, [each.memory for each in shown], lambda size: f"{gib(size)} GiB", GIB, alone)
    return table


_MOST_CAUSES = 3  #: of time and of memory that are shown of several questions


def _add_causes(
    table: Table, asked: Sequence[Sequence[Cause]], text: Callable[[float], str], unit: float, alone: bool
) -> None:
    """A row for each cause that differs, of several questions for the largest; `asked` has those of each question."""
    found = [{cause.label: cause for cause in causes} for causes in asked]
    names = dict.fromkeys(name for causes in found for name in causes)
    most = {name: max(abs(causes[name].more) for causes in found if name in causes) for name in names}
    largest = sorted(names, key=lambda name: -most[name])[: None if alone else _MOST_CAUSES]
    for name in names:
        if name not in largest or most[name] < 0.005 * unit:
            continue
        ours = next(causes[name].ours for causes in found if name in causes)
        sizes = [ours, *(causes[name].theirs if name in causes else 0.0 for causes in found)]
        more = [f"{(sizes[1] - ours) / unit:+,.2f} {text(ours).split()[-1]}"] if alone else []
        table.add_row(f"  {name}", *(text(size) if size else "" for size in sizes), *more)


def spares_report(spares: Spares) -> Iterator[Part]:
    """List the counts that a run continues on after nodes are lost, and why other counts don't do."""
    chosen, replica = spares.plan.layout, spares.plan.layout.world // spares.plan.layout.data
    nodes = spares.plan.job.nodes
    yield Text(f"After losing some of {nodes:,} nodes, with the same batch and {replica:,} GPUs per replica:", BOLD)
    if counts := spares.counts:
        columns = {"idle nodes": 3, "data": 0, "accumulation": 2, "memory": 1, "step": 0, "throughput": 0}
        heads = (numbers(name, drop=drop) for name, drop in columns.items())
        table = Table(whole("nodes lost"), words("continue on"), *heads)
        steps = same_unit([float(count.plan.step_time.total_s) for count in counts], steps=True)
        for count, step in zip(counts, steps, strict=True):
            layout, job = count.plan.layout, count.plan.job
            table.add_row(
                _range(count.lost_from, count.lost_to),
                f"{job.nodes:,} nodes ({job.gpus:,} GPUs)",
                _range(0, count.lost_to - count.lost_from),
                f"{layout.data:,}",
                f"{layout.gradient_accumulation:,}",
                f"{gib(count.plan.memory.required_bytes)} GiB",
                step,
                f"{count.throughput:.0%}",
            )
        yield from ("", table)
    else:
        yield f"No smaller count of nodes works: {chosen.data} replicas share a batch of {chosen.global_batch:,}."
    for number, finding in spares.refused:
        yield f"{number:,} nodes: {finding.message} [{finding.rule}]"
    if counts and counts[-1].plan.job.nodes > SMALLEST_SHARE * nodes:
        yield f"Counts below {SMALLEST_SHARE:.0%} of the nodes are not listed."


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
