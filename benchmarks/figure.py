"""Predicted against measured as a picture: `python -m benchmarks.accuracy --figure
docs/accuracy.svg`.

Drawn by hand as SVG, so that equal figures give equal bytes and nothing but Python is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from html import escape
from math import ceil, log

from benchmarks.pairs import Pair, by_source
from benchmarks.tables import errors, mean_of_sources
from dsgen.units import GIB

SIDE = 400  # of a panel, in pixels
MARGIN = 64
TOP = 56
WIDTH = 2 * SIDE + 3 * MARGIN
COLUMNS = 3  # of the legend
LINE = 18
# of the axes
TICKS = tuple(float(f"{digit}e{power}") for power in range(-6, 7) for digit in (1, 2, 5))
LUMINANCES = (0.18, 0.32)
GUIDES = ((0.10, "near"), (0.25, "far"))
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.page { fill: #ffffff; }
.frame { fill: none; stroke: #59636e; }
.grid { stroke: #d1d9e0; }
.equal { stroke: #1f2328; }
.near, .far { stroke: #59636e; }
.near { stroke-dasharray: 6 3; }
.far { stroke-dasharray: 2 3; }
.soft { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .page { fill: #0d1117; }
  .frame, .near, .far { stroke: #9198a1; }
  .grid { stroke: #3d444d; }
  .equal { stroke: #f0f6fc; }
  .soft { fill: #9198a1; }
}
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One square with the same logarithmic axis both ways."""

    title: str
    unit: str
    left: float
    low: float  #: ends of both axes
    high: float

    def share(self, value: float) -> float:
        """Return how far along an axis a value is."""
        return log(value / self.low) / log(self.high / self.low)

    def x(self, value: float) -> float:
        """Return where a measured value is."""
        return self.left + SIDE * self.share(value)

    def y(self, value: float) -> float:
        """Return where an estimated value is."""
        return TOP + SIDE - SIDE * self.share(value)


def draw(times: Sequence[Pair], sizes: Sequence[Pair]) -> str:
    """The whole picture: step times in seconds, peaks in GiB, a legend with the error of each
    source.
    """
    in_gib = [
        Pair(run=p.run, estimated=p.estimated / GIB, measured=p.measured / GIB) for p in sizes
    ]
    sources = sorted({pair.run.source for pair in (*times, *sizes)})
    rows = ceil(len(sources) / COLUMNS)
    height = TOP + SIDE + MARGIN + (rows + 1) * LINE + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Estimated against measured step time and memory of published runs</title>",
        f"<style>\n{STYLE}\n{_colours(sources)}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        *_panel(_frame("Step time", "s", times, MARGIN), times, sources),
        *_panel(_frame("Memory", "GiB", in_gib, SIDE + 2 * MARGIN), in_gib, sources),
        *_legend(sources, times, sizes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _colours(sources: Sequence[str]) -> str:
    """One hue each, neighbours far apart, alternating between two luminances that stand out from
    either page.
    """
    hues = [(i * 7 % len(sources)) / len(sources) for i in range(len(sources))]
    return "\n".join(
        f".s{i} {{ fill: {_colour(hue, LUMINANCES[i % 2])}; }}" for i, hue in enumerate(hues)
    )


def _colour(hue: float, luminance: float) -> str:
    """The lightest colour of a hue that is no brighter than asked (relative luminance of WCAG
    2).
    """
    channels = max(
        (
            rgb
            for step in range(101)
            if _luminance(rgb := hls_to_rgb(hue, step / 100, 0.8)) <= luminance
        ),
        key=_luminance,
    )
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _luminance(rgb: tuple[float, float, float]) -> float:
    red, green, blue = (channel**2.2 for channel in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _frame(title: str, unit: str, pairs: Sequence[Pair], left: float) -> Panel:
    values = [value for pair in pairs for value in (pair.estimated, pair.measured)] or [1.0, 10.0]
    low = max(tick for tick in TICKS if tick <= min(values))
    high = min(tick for tick in TICKS if tick >= max(values))
    return Panel(title=title, unit=unit, left=left, low=low, high=high)


def _panel(panel: Panel, pairs: Sequence[Pair], sources: Sequence[str]) -> Iterator[str]:
    error = (
        f"mean of sources {mean_of_sources(pairs):.1%}, median run {errors(pairs).median:.1%}"
        if pairs
        else ""
    )
    yield _text(panel.left, 24, f"{panel.title}: estimated against measured, {panel.unit}", "title")
    yield _text(panel.left, 43, f"{len(pairs)} runs; {error}", "soft")
    yield from _axes(panel)
    yield from _guides(panel)
    for pair in sorted(pairs, key=lambda pair: (pair.run.source, pair.run.id)):
        place = f'cx="{panel.x(pair.measured):.1f}" cy="{panel.y(pair.estimated):.1f}"'
        name = f"<title>{escape(pair.run.id)} {pair.error:+.0%}</title>"
        yield (
            f'<circle class="s{sources.index(pair.run.source)}" {place} r="2.5" '
            f'fill-opacity="0.75">{name}</circle>'
        )


def _axes(panel: Panel) -> Iterator[str]:
    bottom, right = TOP + SIDE, panel.left + SIDE
    for value in (tick for tick in TICKS if panel.low <= tick <= panel.high):
        x, y = panel.x(value), panel.y(value)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}M{panel.left} {y:.1f}H{right}"/>'
        yield _text(x, bottom + 17, f"{value:g}", "soft", "middle")
        yield _text(panel.left - 6, y + 4, f"{value:g}", "soft", "end")
    yield f'<rect class="frame" x="{panel.left}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>'
    yield _text(panel.left + SIDE / 2, bottom + 36, f"measured, {panel.unit}", "soft", "middle")


def _guides(panel: Panel) -> Iterator[str]:
    """The line of equality, and those of ±10 % and ±25 %, cut off at the frame."""
    yield _line(panel, 1.0, "equal")
    for share, style in GUIDES:
        for ratio in (1 + share, 1 / (1 + share)):
            yield _line(panel, ratio, style)


def _line(panel: Panel, ratio: float, style: str) -> str:
    """Estimated = ratio × measured, within the frame."""
    first, last = max(panel.low, panel.low / ratio), min(panel.high, panel.high / ratio)
    points = [(panel.x(value), panel.y(value * ratio)) for value in (first, last)]
    return f'<path class="{style}" d="' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points).join(
        ("M", '"/>')
    )


def _legend(sources: Sequence[str], times: Sequence[Pair], sizes: Sequence[Pair]) -> Iterator[str]:
    """Every source with its mean errors; what the lines are."""
    top = TOP + SIDE + MARGIN
    timed, sized = by_source(times), by_source(sizes)
    rows = ceil(len(sources) / COLUMNS)
    for i, source in enumerate(sources):
        x = MARGIN + (i // rows) * (WIDTH - MARGIN) / COLUMNS
        y = top + (i % rows) * LINE
        known = [
            (label, group[source])
            for label, group in (("time", timed), ("memory", sized))
            if source in group
        ]
        parts = [f"{label} {errors(pairs).mean:.0%}" for label, pairs in known]
        yield f'<circle class="s{i}" cx="{x:.1f}" cy="{y - 4}" r="4"/>'
        yield _text(x + 10, y, f"{source}: {', '.join(parts)}")
    words = (
        "Lines: equal, dashed ±10 %, dotted ±25 %. Percentages: mean absolute error of the source"
    )
    yield _text(MARGIN, top + rows * LINE + 6, words, "soft")


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
