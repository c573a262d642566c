"""The examples, loaded and planned once for all tests that use them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import dsgen
from dsgen.job.bindings import bound_values, only_mounted
from dsgen.programs.launchers import LAUNCHERS
from dsgen.search.plan import Infeasible, Plan

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def best_plan(name: str, overrides: Mapping[str, object] | None = None) -> Plan:
    """The plan that `dsgen` chooses for `examples/NAME.yaml`, with spec keys overridden."""
    result = dsgen.search(dsgen.load_job(FOLDER / f"{name}.yaml", overrides=overrides), top=1)
    assert not isinstance(result, Infeasible), (name, result.binding_rule)
    return result.plans[0]


@cache
def plan_for_target(name: str, target: str | None = None) -> Plan:
    """The example's plan; with `target`, launched that way, without what only the example's own target can do."""
    if target is None:
        return best_plan(name)
    cleared: dict[str, object] = {f"launch.{key}": {} for key in LAUNCHERS}
    if any(only_mounted(path) for *_, path in bound_values(best_plan(name).job)):
        cleared |= {"data": {}, "output": {}, "launch.arguments": []}
    return best_plan(name, {**cleared, "launch.shell": {"hostfile": "hosts"}, "launch.target": target})
