"""Our choice beside theirs: published configurations, estimated as they were run and planned anew.

`python -m benchmarks.published` prints the table of RESULTS.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import dsgen
from dsgen.estimate.flops import attention_flops_per_token
from dsgen.search.plan import Infeasible, Plan, SearchResult

ROOT = Path(__file__).parent.parent
RUNS = sorted((ROOT / "tests" / "published").glob("*.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A published run: as estimated with its own layout, and as planned freely on the same
    machines.
    """

    name: str
    source: str
    measured_s: float | None
    #: with their layout pinned; what they don't print is searched
    theirs: SearchResult | Infeasible
    ours: SearchResult | Infeasible  #: with nothing pinned


def compare(path: Path) -> Comparison:
    """Plan one published run both ways."""
    run = yaml.safe_load(path.read_text())
    example = ROOT / "examples" / f"{run['example']}.yaml"
    pins = {f"layout.{key}": value for key, value in run["layout"].items()}
    free = {**run["overrides"], "layout": {}}
    theirs = dsgen.search(dsgen.load_job(example, overrides={**free, **pins}), top=1)
    ours = dsgen.search(dsgen.load_job(example, overrides=free), top=1)
    return Comparison(
        name=path.stem,
        source=run["source"],
        measured_s=_measured_s(run, theirs),
        theirs=theirs,
        ours=ours,
    )


def _measured_s(run: dict[str, Any], theirs: SearchResult | Infeasible) -> float | None:
    """Seconds a step, printed or converted from hardware TFLOPS that count unmasked attention."""
    if "step_time_s" in run:
        return float(run["step_time_s"])
    if "hardware_tflops_per_gpu" not in run or not theirs.plans:
        return None
    plan = theirs.plans[0]
    hardware = (
        plan.throughput.hardware_tflops_per_gpu
        * 1e12
        * float(plan.step_time.total_s)
        * plan.layout.world
    )
    masked = 4 * attention_flops_per_token(plan.job) * plan.job.training.tokens_per_step
    return (hardware + masked) / (float(run["hardware_tflops_per_gpu"]) * 1e12) / plan.layout.world


def layout_text(plan: Plan) -> str:
    """A layout in a table cell."""
    layout = plan.layout
    parts = [f"DP{layout.data}", f"TP{layout.tensor}", f"PP{layout.pipeline}"]
    parts += [f"VPP{layout.virtual_pipeline}"] * (layout.virtual_pipeline > 1)
    parts += [f"CP{layout.context}"] * (layout.context > 1)
    parts += [f"EP{layout.expert}"] * (layout.expert > 1)
    parts += ["SP"] * layout.sequence_parallel
    parts += [f"ZeRO-{layout.zero_stage}", f"micro {layout.micro_batch}"]
    parts += [f"recompute {layout.recompute.label}"] * (layout.recompute.label != "none")
    parts += [f"offload {layout.offload.label}"] * (layout.offload.label != "none")
    return " ".join(parts)


def main() -> None:
    """Print the table."""
    print("| run | theirs | measured s | estimated s | GiB | ours | estimated s | GiB |")
    print("|---|---|---|---|---|---|---|---|")
    for path in RUNS:
        row = compare(path)
        measured = f"{row.measured_s:.1f}" if row.measured_s else "–"
        print(
            f"| {row.name} | {_cells(row.theirs)[0]} | {measured} | {_rest(row.theirs)} | "
            f"{_line(row.ours)} |"
        )
    print()
    for path in RUNS:
        print(f"- {path.stem}: {compare(path).source}")


def _cells(result: SearchResult | Infeasible) -> tuple[str, str, str]:
    if isinstance(result, Infeasible):
        return (f"infeasible ({result.binding_rule})", "–", "–")
    plan = result.plans[0]
    return (
        layout_text(plan),
        f"{plan.step_time.total_s:.1f}",
        f"{plan.memory.required_bytes / 2**30:.0f}",
    )


def _rest(result: SearchResult | Infeasible) -> str:
    return " | ".join(_cells(result)[1:])


def _line(result: SearchResult | Infeasible) -> str:
    return " | ".join(_cells(result))


if __name__ == "__main__":
    main()
