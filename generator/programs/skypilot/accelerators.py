"""SkyPilot's names of accelerators, and the rule that a job asks for the planned ones."""

from __future__ import annotations

from typing import Final

from ...catalog.records import load_catalog
from ...findings import ERROR, Violations
from ...job.records import Job
from ...rules.planned import jobs
from ...rules.violations import violation

#: SkyPilot's names that aren't the first part of the catalog's name, by how that begins.
#: Source: docs.skypilot.co, GPUs and Accelerators (sky show-gpus -a).
_IRREGULAR_NAMES: Final = {
    "a100-80gb": "A100-80GB",
    "v100-32gb": "V100-32GB",
    "rtx-4090": "RTX4090",
    "rtx-a6000": "A6000",
}


def accelerator_name(catalog_name: str) -> str:
    """The name of an accelerator of the catalog: `H100` for `h100-80gb-sxm`."""
    for start, name in _IRREGULAR_NAMES.items():
        if catalog_name.startswith(start):
            return name
    return catalog_name.partition("-")[0].upper()


@jobs.rule("SKY008", ERROR, "silent", "docs.skypilot.co, GPUs and Accelerators (sky show-gpus -a)")
def accelerator_is_the_plans(job: Job) -> Violations:
    """The accelerator of a SkyPilot task is the one that the plan is for.
    Prevents: No error: other machines than memory and time were estimated for.
    Fix: remove launch.skypilot.accelerator, or plan for it in cluster"""
    if job.launch.target != "skypilot":
        return
    stated, planned = job.launch.options.get("accelerator", ""), job.cluster.accelerator.name
    sky_name = accelerator_name(planned)
    # a name that no accelerator of the catalog has isn't judged
    others = {accelerator_name(name).lower() for name in load_catalog().accelerators}
    others.discard(sky_name.lower())
    if str(stated).lower() in others:
        message = (
            f"launch.skypilot.accelerator is {stated}; the plan is for {planned}, which "
            f"SkyPilot calls {sky_name}"
        )
        yield violation(
            job, "/launch/skypilot/accelerator", message, f"write {sky_name}, or plan for {stated}"
        )
