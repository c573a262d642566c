"""A plan's ds_config.json as DeepSpeed reads it, beside what the plan means."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dsgen
from dsgen.findings import Finding, Severity
from dsgen.search.plan import Plan
from tests.deepspeed_parser import parse


def parse_plan(plan: Plan) -> Any:
    """The `DeepSpeedConfig` of the plan's JSON at the real world size, called as the plan's script
    calls it.
    """
    (text,) = [file.text for file in dsgen.render(plan) if file.path == "ds_config.json"]
    return parse(
        json.loads(text), plan.layout.world, dp=plan.layout.data if _has_mpu(plan) else None
    )


def meant_triple(plan: Plan) -> tuple[int, int, int]:
    """The batch triple DeepSpeed should read.

    Without an mpu it counts the ranks of an AutoTP group one by one.
    """
    layout = plan.layout
    counted = 1 if _has_mpu(plan) else layout.tensor
    return (layout.global_batch * counted, layout.micro_batch, layout.gradient_accumulation)


def _has_mpu(plan: Plan) -> bool:
    """Megatron passes its mpu; a pipeline module brings its own grid."""
    return plan.job.framework.passes_mpu or plan.layout.pipeline > 1


def complaints(
    plan: Plan, folder: Path, *, specs: Iterable[Path | None] = (None,)
) -> list[Finding]:
    """What `validate` finds, notes apart, in the plan's files, written into `folder`: without their
    job, or with it as each of `specs`.

    Files for pods whose job names no volume aren't ready, and save to none (KUB032).
    """
    allowed = {"KUB032"} if "volumes" in {each.what for each in plan.missing} else set()
    for file in dsgen.render(plan):
        (folder / file.path).write_text(file.text, encoding="utf-8")
    return [
        finding
        for spec in specs
        for finding in dsgen.validate(folder, job=spec)
        if finding.severity is not Severity.NOTE and finding.rule not in allowed
    ]
