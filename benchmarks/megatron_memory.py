"""Score the estimate of memory against Megatron-LM's own tests: `python -m
benchmarks.megatron_memory [FILE]`.

Each row is one of Megatron-LM's functional tests: its arguments as a spec, and the most bytes that
torch had allocated on its last rank (torch.cuda.max_memory_allocated), which is of the last
pipeline stage. `data/megatron_memory.csv` has the file and the commit of each in
NVIDIA/Megatron-LM, and the variables by which the test makes products deterministic. Printed are
the errors of all rows, of each option's rows, and the worst rows. FILE is another table of the same
columns.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import dsgen
from dsgen.estimate.memory import every_stage
from dsgen.findings import InvalidJob
from dsgen.units import GIB

ROWS: Final = Path(__file__).with_name("data") / "megatron_memory.csv"
_WORST: Final = 12


def rows(path: Path = ROWS) -> Iterator[dict[str, str]]:
    """The rows that count: of tests that still run, first runs, which a spec can say."""
    csv.field_size_limit(2**24)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            counts = row.get("live", "1") == "1" and row.get("second_run", "0") == "0"
            if counts and row["spec_json"] and not row["spec_gaps"]:
                yield row


def spec_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The row's spec with the variables that its test sets."""
    spec: dict[str, Any] = json.loads(row["spec_json"])
    variables = json.loads(row.get("env_json") or "{}")
    environment = {name: str(value) for name, value in variables.items()}
    return {**spec, "launch": {**spec.get("launch", {}), "environment": environment}}


def estimated_bytes(spec: Mapping[str, Any]) -> float:
    """Bytes allocated at the peak of a spec's last pipeline stage."""
    plan = dsgen.estimate(dsgen.load_job(dict(spec)))
    return float(every_stage(plan.job, plan.layout)[-1].allocated_bytes)


def options_of(spec: Mapping[str, Any]) -> Iterator[str]:
    """The options of a row by which its error is looked at."""
    layout, training = spec["layout"], spec["training"]
    for name in ("tensor", "pipeline", "virtual_pipeline", "context", "expert"):
        if layout.get(name, 1) > 1:
            yield name
    yield f"recompute {layout.get('recompute')}"
    yield f"loss {training.get('cross_entropy', 'fused')}"
    yield f"precision {training['precision']}"
    yield f"attention {training.get('attention')}"


def main(path: Path) -> None:
    """Print the errors."""
    errors: list[tuple[float, str, float]] = []
    by_option: dict[str, list[float]] = defaultdict(list)
    for row in rows(path):
        spec, measured = spec_of(row), float(row["mem_max_allocated_bytes"])
        try:
            error = estimated_bytes(spec) / measured - 1
        except InvalidJob as invalid:
            print(f"{row['case']}: {invalid.findings[0].message}")
            continue
        errors.append((error, f"{row['case']} {row['platform']}", measured))
        for option in options_of(spec):
            by_option[option].append(error)

    sizes = [abs(error) for error, _, _ in errors]
    print(
        f"{len(errors)} rows: median {statistics.median(sizes):.1%}, mean "
        f"{statistics.mean(sizes):.1%}, bias {statistics.mean(e for e, _, _ in errors):+.1%}"
    )
    for option, found in sorted(by_option.items()):
        print(f"  {option:24} {len(found):4} rows, bias {statistics.mean(found):+.1%}")
    for error, name, measured in sorted(errors, key=lambda one: -abs(one[0]))[:_WORST]:
        print(f"  {error:+7.1%} {measured / GIB:6.2f} GiB {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
