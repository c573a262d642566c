"""The examples, loaded and planned once for all tests that use them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import dsgen
from dsgen.job.needs import bound_values, only_mounted
from dsgen.job.records import Job
from dsgen.programs.launchers import LAUNCHERS
from dsgen.search.plan import Infeasible, Plan

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

#: Of tests that need the plan of every example: one process plans them.
plans_examples = pytest.mark.xdist_group("examples")


@cache
def best_plan(name: str) -> Plan:
    """The plan that `dsgen` chooses for `examples/NAME.yaml`."""
    result = dsgen.search(dsgen.load_job(FOLDER / f"{name}.yaml"), top=1)
    assert not isinstance(result, Infeasible), (name, result.binding_rule)
    return result.plans[0]


def job_for_target(name: str, target: str) -> Job:
    """The example's job launched that way, without what only the example's own target can do."""
    cleared: dict[str, object] = {f"launch.{key}": {} for key in LAUNCHERS}
    if any(only_mounted(path) for *_, path in bound_values(best_plan(name).job)):
        cleared |= {"data": {}, "output": {}, "launch.arguments": []}
    launch = {"launch.shell": {"hostfile": "hosts"}, "launch.target": target}
    return dsgen.load_job(FOLDER / f"{name}.yaml", overrides={**cleared, **launch})


@cache
def plan_for_target(name: str, target: str | None = None) -> Plan:
    """The example's plan; with `target`, its layout launched that way: how a job is launched
    decides no layout.
    """
    plan = best_plan(name)
    return plan if target is None else replace(plan, job=job_for_target(name, target))
