"""Subjects of the rules of planning: a job, a layout of a job, a layout with its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Final, Literal

import numpy as np

from ..dataclass import dataclass
from ..estimate.layout import FIELDS
from ..findings import Location, Severity, Violation, Violations, When
from ..job.engine import Engine
from ..job.records import Job
from ..rule import Checks, Columns, InFiles, Rule, Subject

#: What a rule on layouts yields. First whether it holds, a bool or a column of them; then, which is
#: only asked of one layout that breaks it, the message and the hint.
Judgement = Iterator[Any]


def _whole(planned: Any) -> Iterable[Any]:
    """What is planned is the only subject of itself."""
    return (planned,)


jobs: Final[Subject[Job]] = Subject((), _whole, "job")


def has_fixed_layers(engine: Engine) -> bool:
    """Ask whether an engine has parallel layers of one kind, without the parts of newer models."""
    return engine.layers == "fixed"


def has_composed_layers(engine: Engine) -> bool:
    """Ask whether an engine composes parallel layers of the parts that a model asks for."""
    return engine.layers == "composed"


def has_parallel_layers(engine: Engine) -> bool:
    """Ask whether an engine's layers are its own, and cut by tensor parallelism."""
    return engine.has_parallel_layers


def has_ordinary_layers(engine: Engine) -> bool:
    """Ask whether an engine takes the layers of any model as they are."""
    return not engine.has_parallel_layers


def replaces_layers(engine: Engine) -> bool:
    """Ask whether an engine replaces the linear layers of any model by cut ones."""
    return engine.layers == "replaced"


def has_partitions(engine: Engine) -> bool:
    """Ask whether an engine updates a rank's part of flat tensors."""
    return engine.sharding == "partitions"


def distributes_states(engine: Engine) -> bool:
    """Ask whether an engine spreads an optimizer's states; from stage 2 it gathers units too."""
    return engine.sharding == "distributed"


def passes_around(engine: Engine) -> bool:
    """Ask whether context parallelism passes keys and values around a ring."""
    return engine.context == "ring"


def exchanges_heads(engine: Engine) -> bool:
    """Ask whether the engine's own attention exchanges sequence for heads."""
    return engine.context == "exchange"


def is_scripted(engine: Engine) -> bool:
    """Ask whether the user's script builds model and groups."""
    return engine.scripted


composed_jobs: Final = jobs.where(lambda job: has_composed_layers(job.engine))
fixed_jobs: Final = jobs.where(lambda job: has_fixed_layers(job.engine))
parallel_jobs: Final = jobs.where(lambda job: has_parallel_layers(job.engine))
replaced_jobs: Final = jobs.where(lambda job: replaces_layers(job.engine))
#: With adapters of the model's own linear layers, which peft makes.
adapted_jobs: Final = jobs.where(
    lambda job: job.framework.adapters is not None and not job.framework.adapters.of_fused
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSubject:
    """What a rule on layouts judges: the fields it reads, and the jobs that it binds."""

    columns: Columns
    checks: Checks

    def rule(
        self, id: str, severity: Severity, when: When, source: str, in_files: InFiles | None = None
    ) -> Callable[[Callable[..., Judgement] | Rule], Rule]:
        """Make a rule of the generator below.

        The generator is given a job, a layout, and for `fit` its ledger. It yields whether the rule
        holds, then the message with both numbers, and the hint with a value that passes. Columns of
        layouts are only asked for the first. Warnings never remove a layout from the search. Above
        another rule, the judgement is that rule's.
        """

        def made(judge: Callable[..., Judgement] | Rule) -> Rule:
            header: dict[str, Any] = {
                "id": id,
                "severity": severity,
                "when": when,
                "source": source,
                "in_files": in_files,
            }
            if isinstance(judge, Rule):
                columns = replace(judge.columns, binds=self.columns.binds)
                return replace(
                    judge, also=(judge, *judge.also), columns=columns, checks=self.checks, **header
                )

            def holds(*planned: Any) -> Any:
                return next(judge(*planned))

            def explain(*planned: Any) -> tuple[str, str]:
                _, (message, hint) = judge(*planned)
                return message, hint

            @wraps(judge)
            def check(planned: tuple[Any, ...]) -> Violations:
                if not holds(*planned):
                    yield Violation(_place(planned[0], self.columns.reads), *explain(*planned))

            columns = replace(self.columns, holds=holds, explain=explain)
            text = judge.__doc__ or ""
            return Rule(
                **header,
                text=text,
                checks=self.checks,
                check=check,
                subjects=_whole,
                columns=columns,
            )

        return made


def layouts(
    *reads: str,
    of: Callable[[Engine], bool] | None = None,
    detail: str | None = None,
    applies: Callable[[Job], bool] | None = None,
    checks: Literal["layout", "fit"] = "layout",
) -> LayoutSubject:
    """Layouts as a rule judges them; with `checks="fit"`, each with its ledger.

    `reads` are fields of `Layout`, of which the first is where a finding points, and facts of the
    job. The rule binds jobs for whose engine `of` is true, whose engine has the `detail`, and for
    which `applies` is true; a condition that is left out binds all.
    """
    fields = tuple(name for name in reads if name in FIELDS)
    facts = tuple(name for name in reads if name not in FIELDS)

    def binds(job: Job) -> bool:
        has_detail = detail is None or job.engine.has(detail)
        return has_detail and (of is None or of(job.engine)) and (applies is None or applies(job))

    return LayoutSubject(columns=Columns(reads=fields, facts=facts, binds=binds), checks=checks)


IN_CONFIGS: Final = InFiles(kinds=("DeepSpeed config",))
IN_ALL: Final = InFiles(kinds=("Megatron arguments", "DeepSpeed config"))
ONLY_FIXED: Final = InFiles(only=has_fixed_layers)
NO_RAMP_UP: Final = InFiles(unless=("--rampup-batch-size", "--step-batch-size-schedule"))
composed_layouts: Final = partial(layouts, of=has_composed_layers)
fixed_layouts: Final = partial(layouts, of=has_fixed_layers)
parallel_layouts: Final = partial(layouts, of=has_parallel_layers)
ordinary_layouts: Final = partial(layouts, of=has_ordinary_layers)
replaced_layouts: Final = partial(layouts, of=replaces_layers)
partition_layouts: Final = partial(layouts, of=has_partitions)
distributed_layouts: Final = partial(layouts, of=distributes_states)
ring_layouts: Final = partial(layouts, of=passes_around)
exchange_layouts: Final = partial(layouts, of=exchanges_heads)


def detail_layouts(
    *reads: str,
    applies: Callable[[Job], bool] | None = None,
    checks: Literal["layout", "fit"] = "layout",
) -> LayoutSubject:
    """Layouts of engines that have the detail which the rule reads first."""
    return layouts(*reads, detail=reads[0], applies=applies, checks=checks)


def without_detail(name: str) -> LayoutSubject:
    """Layouts of engines that don't have a detail."""
    return layouts(name, of=lambda engine: not engine.has(name))


def given(job: Job, layout: Any, *keys: str) -> str:
    """Say keys of a layout with their values: `zero_stage: 3 with pipeline: 2`."""
    return " with ".join(job.says(key, getattr(layout, key)) for key in keys)


def elsewhere(job: Job, layout: Any, key: str, value: object, *others: str) -> tuple[str, str]:
    """Message and hint where a framework has only one `value` of a key, but `others` have more."""
    message = (
        f"{given(job, layout, key)} is not available with {job.says('framework', job.framework)}"
    )
    hint = f"use {job.says(key, value)}"
    return message, f"{hint}, or {job.says('framework', *others)}" if others else hint


# What follows takes numbers and numpy columns alike.


def implies(condition: Any, consequence: Any) -> Any:
    """Ask whether `consequence` is true wherever `condition` is."""
    return np.logical_or(np.logical_not(condition), consequence)


def divides(divisor: Any, number: Any) -> Any:
    """Ask whether `number` is a multiple of `divisor`."""
    return number % divisor == 0


def divide_either_way(a: Any, b: Any) -> Any:
    """Ask whether one of two positive numbers is a multiple of the other."""
    return (a % b == 0) | (b % a == 0)


def is_moe(job: Job) -> bool:
    """A condition of rules: the model has experts."""
    return job.model.experts > 0


def _place(job: Job, fields: tuple[str, ...]) -> Location:
    """The place of the first field that is written, else of the first that is known.

    Without one it is that of the layout.
    """
    written = [name for name in fields if f"/layout/{name}" in job.origin.locations]
    pinned = [name for name in fields if getattr(job.pins, name) is not None]
    name = next(iter((*written, *pinned, *fields)), None)
    return job.locate(f"/layout/{name}" if name else "/layout")
