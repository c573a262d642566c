"""Plan, check and write the files of a large training run.

>>> import dsgen
>>> job = dsgen.load_job("job.yaml", overrides={"gpus": 1024})
>>> answer = dsgen.search(job)
>>> files = dsgen.render(answer.plans[0])

Nothing heavy is imported before it is needed, so that `import dsgen` costs a few milliseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

from .version import __version__

if TYPE_CHECKING:
    from .estimate.layout import Layout
    from .findings import Finding, InvalidJob
    from .job.records import Job
    from .programs.program import RenderedFile
    from .search.plan import Infeasible, Plan, SearchResult

# Imports within functions save start-up time.

__all__ = [
    "Finding",
    "Infeasible",
    "InvalidJob",
    "Job",
    "Layout",
    "Plan",
    "RenderedFile",
    "SearchResult",
    "__version__",
    "check_job",
    "estimate",
    "load_job",
    "render",
    "search",
    "validate",
]

#: The modules of the public types, which are imported when they are first asked for.
_HOMES = {
    "Finding": ".findings",
    "Infeasible": ".search.plan",
    "InvalidJob": ".findings",
    "Job": ".job.records",
    "Layout": ".estimate.layout",
    "Plan": ".search.plan",
    "RenderedFile": ".programs.program",
    "SearchResult": ".search.plan",
}

Source = str | os.PathLike[str] | TextIO | Mapping[str, object]


class _Package(ModuleType):
    """The package, in which `estimate`, `render` and `search` stay functions.

    There are modules of these names too. To import one sets it as an attribute of the package,
    which would put the module in the function's place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_job(
    source: Source, *, overrides: Mapping[str, object] | None = None, check_pins: bool = False
) -> Job:
    """The job that `source` (a path, a text stream or a mapping) describes, resolved and checked.

    `overrides` maps dotted paths of the spec, such as `training.global_batch`, to values. Raises
    `InvalidJob`, which holds every finding, when the spec is wrong or its facts contradict each
    other. Pinned layout keys that break a rule are for `estimate` to show and for `search` to
    answer with `Infeasible`; with `check_pins` they raise here too.
    """
    return check_job(source, overrides=overrides, check_pins=check_pins)[0]


def check_job(
    source: Source, *, overrides: Mapping[str, object] | None = None, check_pins: bool = True
) -> tuple[Job, tuple[Finding, ...]]:
    """The job as `load_job` gives it, pinned keys checked, with its warnings and notes.

    Raises `InvalidJob`.
    """
    from .findings import InvalidJob, Severity, in_file_order
    from .job.load import load_with_findings
    from .programs import job_rules
    from .programs.frameworks import FRAMEWORKS
    from .rules import run

    try:
        job, findings = load_with_findings(source, FRAMEWORKS, overrides=overrides or {})
    except InvalidJob as invalid:
        if invalid.meant is None:
            raise
        pinned = run.check_pins(invalid.meant) if check_pins else ()
        of_rules = (*job_rules.check_job(invalid.meant), *pinned)
        wrong = (finding for finding in of_rules if finding.severity is not Severity.NOTE)
        raise InvalidJob((*invalid.findings, *wrong)) from None
    pinned = run.check_pins(job) if check_pins else ()
    findings = in_file_order((*findings, *job_rules.check_job(job), *pinned))
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise InvalidJob(findings)
    return job, findings


def _require_job(job: object, function: str) -> None:
    """Raise TypeError for what is no job, such as the path of a spec.

    The message says what to pass to this function of the package instead.
    """
    from .job.records import Job

    if not isinstance(job, Job):
        source = repr(job) if isinstance(job, str) else "spec"
        message = f"{function}() takes a Job, not {type(job).__name__}"
        raise TypeError(f"{message}: dsgen.{function}(dsgen.load_job({source}))")


def search(job: Job, *, top: int = 10, bold: bool = False) -> SearchResult | Infeasible:
    """The best `top` plans for `job`, best first, or why there is none.

    Every legal layout that fits is estimated and ranked.

    The best has the least expected time (docs/search.md); with `bold`, it is the fastest.
    """
    from .search import search

    _require_job(job, "search")
    return search(job, top=top, bold=bold)


def estimate(job: Job) -> Plan:
    """One layout of `job`, estimated without a search.

    Layout keys that the job leaves open use the framework's defaults. Layout and fit rules that it
    breaks are in the plan's `findings`; it is estimated all the same.
    """
    from .search import estimate

    _require_job(job, "estimate")
    return estimate(job)


def render(plan: Plan) -> tuple[RenderedFile, ...]:
    """The files that launch `plan`, sorted by path. Nothing is written."""
    from .render import render

    return render(plan)


def validate(
    *paths: str | os.PathLike[str],
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    cluster: str | None = None,
    model: str | None = None,
    job: str | os.PathLike[str] | None = None,
    consumer: str | None = None,
    deepspeed_version: str | None = None,
    engine: bool = False,
    skip_unknown: bool = False,
    strict: bool = False,
) -> tuple[Finding, ...]:
    """Every finding in the documents at `paths`, in file order: in each document, and between them.

    A path is a file, or a folder of one job; an empty tuple is no finding. What is said several
    times is one finding, at the first place, with the others in `again`; unless `strict`.

    Documents are what `dsgen validate` reads: job specs, DeepSpeed configs, launch scripts, jobs of
    AzureML, Kubernetes and SkyPilot, accelerate configs, TrainingArguments, Megatron arguments,
    Megatron-Bridge overrides and hostfiles. The rest is what the files don't contain: `gpus` of the
    whole job and `gpus_per_node`, `cluster` and `model` by names as in a job spec, the path of the
    `job` spec that the files are for, the installed `deepspeed_version`, and the `consumer`, the
    program that reads the DeepSpeed config (deepspeed, huggingface, accelerate, lightning or
    megatron-deepspeed).

    With `engine` the installed DeepSpeed's own parser is run too: `ModuleNotFoundError` without
    one. With `skip_unknown` files that are no such document are left out though they are named.
    Raises nothing else: bad input is a finding.
    """
    from .check.validate import folded, validate

    answer = validate(
        paths,
        job=job,
        engine=engine,
        skip_unknown=skip_unknown,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        cluster=cluster,
        model=model,
        consumer=consumer,
        deepspeed_version=deepspeed_version,
    )
    return answer.findings if strict else folded(answer.findings)
