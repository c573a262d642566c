"""The rules of jobs and layouts, applied to runs inferred from Megatron arguments: a constraint is written once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ....findings import Violation, Violations
from ....job.records import Job
from ....rule import Arguments, Rule
from ....rules.layout.identities import BATCH_RULES, WORLD_RULES, Product, batch_product, world_product
from ....rules.layout.pins import known_values, layout_of
from ....rules.layout.pipeline import micro_batches_fill_pipeline
from ...job_rules import PLANNING_RULES
from ...rule import subject
from ..inferred_run import InferredRun, inferred_runs
from ..run import GLOBAL, MICRO, PIPELINE, MegatronRun
from .rule import READS, at

runs: Final = subject(*READS)(inferred_runs)

_SIZES: Final = ("tensor", "pipeline", "context")


def _by_layout(rule: Rule, inferred: InferredRun) -> Violations:
    """The violations of a layout rule."""
    job = inferred.job
    if inferred.facts.issuperset((*rule.columns.reads, *rule.columns.facts)) and rule.columns.binds(job):
        for violation in rule.check((job, layout_of(known_values(job)))):
            yield replace(violation, where=inferred.locate(rule.columns.reads))


def _by_job(rule: Rule, inferred: InferredRun) -> Violations:
    """The violations of a rule on jobs."""
    facts = rule.arguments.facts if rule.arguments else ()
    if set(facts) <= inferred.facts:
        for job in rule.subjects(inferred.job):
            for violation in rule.check(job):
                yield replace(violation, where=inferred.locate(facts[:1]))


def _by_product(rule: Rule, inferred: InferredRun) -> Violations:
    """The violations of a product: the sizes that are given divide their total."""
    job, known = inferred.job, known_values(inferred.job)
    names = _SIZES if rule in WORLD_RULES else ("global_batch", "micro_batch")
    if not rule.columns.binds(job) or not inferred.facts.issuperset(("gpus", *names)):
        return
    product = _world(job, known) if rule in WORLD_RULES else _batch(job, known) if "data" in known else None
    if product is not None and product.factors and product.total % product.known:
        message, hint = product.explain(whole=False)
        yield Violation(inferred.locate(product.factors if rule in WORLD_RULES else names), message, hint)


def _world(job: Job, known: dict[str, Any]) -> Product | None:
    """The product of the sizes above 1, against GPUs that needn't be whole nodes."""
    tensor, pipeline = job.pins.tensor or 1, job.pins.pipeline or 1
    if job.framework.runs("Megatron-DeepSpeed") and (tensor > job.gpus or pipeline > max(job.gpus // tensor, 1)):
        return None  # it reduces sizes that are too large, which another rule reports
    return replace(world_product(job, {name: known[name] for name in _SIZES if known.get(name, 1) > 1}), step=1)


def _batch(job: Job, known: dict[str, Any]) -> Product:
    return batch_product(job, {name: value for name, value in known.items() if name != "gradient_accumulation"})


def _with_any_replicas(run: MegatronRun) -> Violations:
    """Pipelines that a single replica's micro-batches would not fill, where the number of replicas isn't known."""
    batch, micro, stages = run.global_batch, run.micro_batch, run.pipeline
    if not batch or not micro or not stages or (run.gpus and run.model_parallel):
        return
    most = max(batch // micro, 1)
    if most < stages:
        waits = round(100 * (stages - 1) / (stages + most - 1))
        given = f"{GLOBAL} {batch}, {MICRO} {micro} and {PIPELINE} {stages}"
        message = f"every stage waits {waits}% of the step or more with {given}: at most {most} micro-batches"
        hint = f"use {GLOBAL} {stages * micro} for every replica, or a smaller pipeline"
        yield at(run, run.first_of(GLOBAL, PIPELINE), message, hint)


def _on_files(rule: Rule) -> Rule:
    """The same rule on inferred runs: its id, severity, source and text."""
    arguments = rule.arguments or Arguments()
    judge = _by_job if rule.checks == "job" else _by_product if rule in (*WORLD_RULES, *BATCH_RULES) else _by_layout

    def check(inferred: InferredRun) -> Violations:
        applies = not arguments.only or bool(inferred.job.framework.software & set(arguments.only))
        if applies and inferred.run is not None and not inferred.run.has_any(*arguments.unless):
            for violation in judge(rule, inferred):
                yield replace(violation, severity=arguments.severity)
            if rule is micro_batches_fill_pipeline:
                yield from _with_any_replicas(inferred.run)

    return replace(rule, checks="files", reads=READS, check=check, subjects=runs.subjects, also=())


RULES: Final = tuple(_on_files(rule) for rule in PLANNING_RULES if rule.arguments is not None)
