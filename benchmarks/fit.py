"""Fits the time model's constants to published runs, and predicts every cluster with constants that
never saw it.

`python -m benchmarks.fit` prints each constant with its prior; `--write` puts the values into
constants.yaml and the left-out predictions into data/left_out.json. Sources count equally, whatever
their number of rows; every constant is held back by half of its prior's spread. What is left out is
a whole cluster (`benchmarks.clusters`): all sources that share its machines and its stack.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.clusters import cluster
from benchmarks.measured import Run, runs
from dsgen.estimate import rates as rates_module
from dsgen.estimate.posterior import Vector, cost, jacobian, settled, solve, weights_of
from dsgen.estimate.rates import constants, selectors
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Calibration

LEFT_OUT = Path(__file__).parent / "data" / "left_out.json"
CONSTANTS = Path(rates_module.__file__).with_name("constants.yaml")
#: Standard deviation of log(estimated / measured) that constants shouldn't try to explain:
#: identical rows of one table differ by 5 %, and tables differ in what they leave out.
NOISE = 0.08
#: A source counts as so many independent runs at most, the root of its rows being more than that.
MOST_RUNS = 6.0
ROUNDS = 6  #: of the search for the most probable constants, at most
#: How much of a prior's spread the fit may use. Left-out errors are the same from 0.2 to 0.7 (mean
#: of sources 11.6 to 11.8 %, median row 7.7 to 8.0 %); at 1 the median row is at 8.9 %: the fit
#: follows single sources.
HELD = 0.5
#: What a framework, network or set of kernels does is fitted to so many clusters at least, what a
#: part does to as many: of fewer, the constant would be a cluster's own. It stays at its prior;
#: `dsgen calibrate` may still move it.
FEWEST_CLUSTERS = {
    "framework": 3,
    "network": 3,
    "kernels": 3,
    "attention": 3,
    "generation": 2,
    "fabric": 2,
    "any": 2,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One constant under one key: what the fit may move."""

    name: str
    key: str
    spread: float


def usable() -> list[Run]:
    """Runs of quality A and B with a step time."""
    return [run for run in runs() if run.step_time_s is not None and run.quality in ("A", "B")]


def parameters(rows: Sequence[Run]) -> list[Parameter]:
    """Every constant that has a spread and acts on runs of enough clusters."""
    found: dict[tuple[str, str, float], set[str]] = {}
    for run in rows:
        for acting in _acting(run):
            name, _, spread = acting
            is_new = spread > 0 and cluster(run) not in found.get(acting, ())
            if is_new and feeds(run, name):
                found.setdefault(acting, set()).add(cluster(run))
    return [
        Parameter(*parameter)
        for parameter, clusters in sorted(found.items())
        if len(clusters) >= FEWEST_CLUSTERS[constants()[parameter[0]].by]
    ]


def feeds(run: Run, name: str) -> bool:
    """Tell whether the run's estimate depends on the constant; for those that frameworks, networks
    and their kernels pick.
    """
    if constants()[name].by not in ("framework", "network", "kernels", "attention"):
        return True
    plain, moved = (
        float(
            step_time(
                replace(run.job, calibration=Calibration(factors=factors)), run.layout
            ).total_s
        )
        for factors in ((), ((name, 0.9),))
    )
    return plain != moved


def _acting(run: Run) -> list[tuple[str, str, float]]:
    chosen = selectors(run.job)
    acting = []
    for name, family in constants().items():
        key, constant = family.pick(chosen[family.by])
        acting.append((name, key, constant.spread))
    return acting


class Residuals:
    """log(estimated / measured) of runs under corrections, relative to the priors."""

    def __init__(self, rows: Sequence[Run], moved: Sequence[Parameter]) -> None:
        self.rows = rows
        self.measured = np.array([run.step_time_s for run in rows], dtype=float)
        index = {(p.name, p.key): i for i, p in enumerate(moved)}
        self.places = [_places(run, index) for run in rows]
        self.base = [_prior_factors(run) for run in rows]
        self.known: list[dict[tuple[float, ...], float]] = [{} for _ in rows]

    def __call__(self, x: Vector) -> Vector:
        estimated = [self._known(i, x) for i in range(len(self.rows))]
        return np.log(np.array(estimated) / self.measured)

    def _known(self, i: int, x: Vector) -> float:
        """The estimate, made once for the corrections that act on the run: a derivative moves
        others as well.
        """
        own = tuple(float(x[place]) for place in self.places[i].values())
        if own not in self.known[i]:
            self.known[i][own] = self._estimate(i, x)
        return self.known[i][own]

    def _estimate(self, i: int, x: Vector) -> float:
        run = self.rows[i]
        factors = dict(self.base[i])
        for name, place in self.places[i].items():
            factors[name] = factors.get(name, 1.0) * math.exp(x[place])
        calibration = Calibration(factors=tuple(factors.items()))
        return float(step_time(replace(run.job, calibration=calibration), run.layout).total_s)


def _places(run: Run, index: dict[tuple[str, str], int]) -> dict[str, int]:
    """Return where in the vector of corrections each constant of the run is."""
    return {name: index[name, key] for name, key, _ in _acting(run) if (name, key) in index}


def _prior_factors(run: Run) -> dict[str, float]:
    """Return what turns the values in use back into the priors."""
    chosen = selectors(run.job)
    picked = {name: family.pick(chosen[family.by])[1] for name, family in constants().items()}
    return {name: c.prior / c.value for name, c in picked.items() if c.prior != c.value}


def noise(rows: Sequence[Run]) -> Vector:
    """Standard deviation of each residual: larger in long tables, so that a source counts as
    `MOST_RUNS` at most.
    """
    counts = Counter(run.source for run in rows)
    shares = np.array(
        [min(math.sqrt(counts[run.source]), MOST_RUNS) / counts[run.source] for run in rows]
    )
    return NOISE / np.sqrt(shares)


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of the fit."""

    moved: list[Parameter]
    x: Vector  #: logarithms of value over prior
    #: estimated seconds by run id, the run's cluster not being in the fit
    left_out: dict[str, float]
    without: dict[str, Vector]  #: x by cluster, the cluster not being in the fit


def fit() -> Fit:
    """Fit all sources, then predict every cluster without itself (linearised at the whole fit)."""
    rows = usable()
    moved = parameters(rows)
    residuals = Residuals(rows, moved)
    spreads = HELD * np.array([p.spread for p in moved])
    x = most_probable(residuals, spreads, noise=noise(rows))
    at_x = residuals(x)
    slopes = jacobian(residuals, x, at_x)
    left_out: dict[str, float] = {}
    without: dict[str, Vector] = {}
    for name in sorted({cluster(run) for run in rows}):
        inside = np.array([cluster(run) != name for run in rows])
        y = without[name] = _without(slopes, at_x, x, inside, rows, spreads)
        mine = [run for run in rows if cluster(run) == name]
        errors = Residuals(mine, moved)(y)
        left_out |= {
            run.id: float(run.step_time_s or 0) * math.exp(e)
            for run, e in zip(mine, errors, strict=True)
        }
    return Fit(moved, x, left_out, without)


def most_probable(
    residuals: Callable[[Vector], Vector], spreads: Vector, *, noise: Vector
) -> Vector:
    """The vector x that minimises `sum (residual / noise)^2 + sum (x / spread)^2`, outliers counted
    less.

    `residuals(x)`: n numbers, logarithms of estimated over measured under the corrections x
    (logarithms of factors). `spreads`: prior standard deviation of each x. `noise`: standard
    deviation of each residual that no correction explains. Gauss-Newton with differences for
    derivatives; a round that doesn't improve ends it.
    """
    x = np.zeros(len(spreads))
    current = residuals(x)
    for _ in range(ROUNDS):
        weights = weights_of(current, noise)
        slopes = jacobian(residuals, x, current)
        step = solve(slopes, current - slopes @ x, weights, spreads) - x
        step = np.clip(step, -2 * spreads, 2 * spreads)
        candidate = residuals(x + step)
        if cost(candidate, x + step, noise, spreads) >= cost(current, x, noise, spreads):
            break
        x, current = x + step, candidate
    return x


def _without(
    slopes: np.ndarray,
    at_x: Vector,
    x: Vector,
    inside: np.ndarray,
    rows: Sequence[Run],
    spreads: Vector,
) -> Vector:
    """The constants of the runs `inside`, reweighted as the outliers change."""
    spread_of_noise = noise([run for run, use in zip(rows, inside, strict=True) if use])
    weights = weights_of(at_x[inside], spread_of_noise)
    at_none = at_x[inside] - slopes[inside] @ x
    return settled(slopes[inside], at_none, spread_of_noise, spreads, weights=weights, rounds=5)


def write(found: Fit) -> None:
    """Put the values into constants.yaml, comments and order kept, and the predictions beside the
    data.
    """
    text = CONSTANTS.read_text()
    blocks = re.split(r"(?m)^(?=\w+:$)", text)
    values = {(p.name, p.key): math.exp(v) for p, v in zip(found.moved, found.x, strict=True)}
    CONSTANTS.write_text("".join(_rewrite(block, values) for block in blocks))
    LEFT_OUT.write_text(
        json.dumps({k: float(f"{v:.5g}") for k, v in sorted(found.left_out.items())}, indent=0)
        + "\n"
    )


def _rewrite(block: str, values: dict[tuple[str, str], float]) -> str:
    name = block.partition(":")[0]

    def line(match: re.Match[str]) -> str:
        moved = values.get((name, match["key"]))
        value = match["prior"] if moved is None else _figures(float(match["prior"]) * moved)
        return f"  {match['key']}: {{value: {value}, prior: {match['prior']},"

    return re.sub(r"(?m)^  (?P<key>[\w-]+): \{value: \S+, prior: (?P<prior>\S+),", line, block)


def _figures(value: float) -> str:
    """Three significant figures, as YAML 1.1 reads a number."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}" if abs(int(exponent)) > 3 else f"{float(f'{value:.3g}')}"


def main() -> None:
    """Fit and print."""
    found = fit()
    for parameter, x in zip(found.moved, found.x, strict=True):
        family = constants()[parameter.name]
        prior = family.by_key[parameter.key].prior
        moved = f"{prior:9.3g} -> {prior * math.exp(x):9.3g} ({x / parameter.spread:+.1f} spreads)"
        print(f"{parameter.name:28} {parameter.key:24} {moved}")
    print_left_out(found)
    if "--write" in sys.argv:
        write(found)


def print_left_out(found: Fit) -> None:
    """Error by source, each predicted without its cluster; mixture-of-experts models by themselves
    as well.
    """
    errors: dict[str, list[float]] = {}
    experts: dict[str, list[float]] = {}
    for run in usable():
        error = found.left_out[run.id] / float(run.step_time_s or 1) - 1
        errors.setdefault(run.source, []).append(error)
        if run.job.model.experts > 0:
            experts.setdefault(run.source, []).append(error)
    for source, values in sorted(errors.items()):
        size = np.abs(values)
        figures = (
            f"mean {size.mean():6.1%} median {np.median(size):6.1%} bias {np.mean(values):+.1%}"
        )
        print(f"{source:18} n={len(values):4} {figures}")
    whole = np.abs(np.concatenate([np.array(values) for values in errors.values()]))
    mean, routed = (
        np.mean([np.abs(values).mean() for values in group.values()]) for group in (errors, experts)
    )
    print(
        f"mean of sources {mean:.1%}, median row {np.median(whole):.1%}; mixture of "
        f"experts {routed:.1%}"
    )


if __name__ == "__main__":
    main()
