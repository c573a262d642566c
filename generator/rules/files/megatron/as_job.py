"""A launch script as a job: the rules of jobs and layouts applied to it, so that a constraint is written once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity, Violation, Violations, When
from ....job.records import Job
from ....rule import Rule
from ...layout.identities import BATCH_RULES, WORLD_RULES, Product, batch_product, world_product
from ...layout.pins import known_values, layout_of
from ...registry import JOB_RULES, LAYOUT_RULES
from ...rule import submissions
from .described import Described, described_jobs
from .job_words import in_options, with_global_batch
from .rule import GLOBAL, MICRO, PIPELINE

_SIZES: Final = ("tensor", "pipeline", "context")

#: The layout rules that hold for arguments as they do for a spec, and the facts that each needs.
_LAYOUT: Final[Mapping[str, tuple[str, ...]]] = {
    "MLM004": ("heads", "tensor"),
    "MLM005": ("heads", "kv_heads", "tensor"),
    "MDS017": ("heads", "kv_heads", "tensor"),
    "MLM006": ("hidden", "ffn", "experts", "tensor"),
    "MLM041": ("experts", "moe_ffn", "tensor"),
    "MLM040": ("vocab", "tensor"),
    "MLM008": ("context", "sequence"),
    "MLM010": ("sequence_parallel", "tensor"),
    "MLM035": ("experts", "sequence_parallel", "tensor"),
    "SEQ001": ("sequence", "sequence_parallel", "tensor", "context"),
    "MDS004": _SIZES,
    "MDS005": ("context", "sequence_parallel"),
    "MDS006": ("context", "sequence"),
    "SP001": ("heads", "context"),
    "SP003": ("heads", "kv_heads", "context"),
    "MLM016": ("gpus", "accumulation", "virtual_pipeline", "pipeline"),
    "BATCH011": ("gpus", "accumulation", "pipeline"),
    "PIPE013": ("layers", "pipeline"),
    "PIPE016": ("offload", "pipeline"),
    "MOE001": ("experts", "expert"),
    "MOE005": ("experts", "expert"),
    "MOE006": ("gpus", "experts", "expert"),
    "MDS021": ("recompute", "context", "attention"),
    "NODE002": ("cluster", "tensor"),
}
#: The same of the rules on jobs, with the key whose place a finding has.
_JOB: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "PREC002": ("precision", ("cluster", "precision")),
    "ATT001": ("attention", ("cluster", "attention")),
    "MDS023": ("precision", ("heads", "kv_heads", "precision")),
}
#: Only for one of the Megatrons, where the other's arguments say more than a layout does.
_ONLY: Final = {"PIPE013": "megatron-deepspeed", "MOE005": "megatron-deepspeed"}
#: Less than the rule's severity, because the run goes on and trains what is written.
_MILDER: Final = {"MLM010": Severity.WARNING, "MDS021": Severity.WARNING}
#: Options that say otherwise what the rule would judge.
_UNLESS: Final = {
    "MLM016": ("--microbatch-group-size-per-virtual-pipeline-stage", "--rampup-batch-size"),
    "BATCH011": ("--rampup-batch-size", "--step-batch-size-schedule"),
    "MLM002": ("--decrease-batch-size-if-needed", "--rampup-batch-size", "--step-batch-size-schedule"),
    "MDS008": ("--rampup-batch-size",),
    "MLM006": ("--heterogeneous-layers-config-path", "--hybrid-layer-pattern"),
    "MLM005": ("--multi-latent-attention",),
}
_SILENT: Final = frozenset({"BATCH011", "MLM010", "MLM040", "MDS021", "NODE002"})


def _allowed(rule: str, described: Described) -> bool:
    arguments = described.arguments
    return _ONLY.get(rule, arguments.flavour) == arguments.flavour and not any(
        map(arguments.has, _UNLESS.get(rule, ()))
    )


def _by_layout(rule: Rule, submission: Submission) -> Violations:
    """The violations of a layout rule by the arguments of each run."""
    needed = frozenset(_LAYOUT[rule.id])
    for described in described_jobs(submission):
        job = described.job
        if not needed <= described.facts or not _allowed(rule.id, described) or not rule.columns.binds(job):
            continue
        known = known_values(job)
        layout = layout_of(known)
        if any(name not in known for name in rule.columns.reads) or rule.columns.holds(job, layout):
            continue
        translate = in_options(job.framework.name)
        message, hint = rule.columns.explain(job, layout)
        yield Violation(
            where=described.locate(rule.columns.reads),
            message=translate(message),
            hint=translate(with_global_batch(hint, layout)),
            severity=_MILDER.get(rule.id),
        )


def _of_any_replicas(submission: Submission) -> Violations:
    """Pipelines that a single replica's micro-batches would not fill, where the number of replicas isn't known."""
    for described in described_jobs(submission):
        if "gpus" in described.facts or not {"global_batch", "micro_batch", "pipeline"} <= described.facts:
            continue
        pins, batch = described.job.pins, described.job.training.global_batch
        micro, stages = pins.micro_batch or 1, pins.pipeline or 1
        most = max(batch // micro, 1)
        if most < stages and _allowed("BATCH011", described):
            idle = round(100 * (stages - 1) / (stages + most - 1))
            message = (
                f"{GLOBAL} {batch} is at most {most} micro-batches of {MICRO} {micro}, fewer than {PIPELINE} {stages}:"
                f" every stage idles {idle}% of the step or more"
            )
            hint = f"{GLOBAL} {stages * micro} for every replica, or a smaller pipeline"
            yield Violation(where=described.locate(("global_batch", "pipeline")), message=message, hint=hint)


def _by_job(rule: Rule, submission: Submission) -> Violations:
    """The violations of a rule on jobs by the arguments of each run."""
    key, needed = _JOB[rule.id]
    for described in described_jobs(submission):
        if frozenset(needed) <= described.facts:
            translate = in_options(described.job.framework.name)
            for found in chain.from_iterable(map(rule.check, rule.subjects(described.job))):
                hint = translate(found.hint) if found.hint else None
                yield Violation(where=described.locate((key,)), message=translate(found.message), hint=hint)


def _by_product(rule: Rule, submission: Submission) -> Violations:
    """The violations of a product: the sizes that are given divide what they make."""
    of_world = rule in WORLD_RULES
    for described in described_jobs(submission):
        job = described.job
        if not rule.columns.binds(job) or "gpus" not in described.facts or not _allowed(rule.id, described):
            continue
        known = known_values(job)
        if of_world and job.framework.runs("Megatron-DeepSpeed") and _is_cut_down(job):
            continue  # of sizes that are too large, another rule speaks
        if of_world:
            known.pop("data", None)
            known = {name: known[name] for name in _SIZES if known.get(name, 1) > 1}
            product = replace(world_product(job, known), step=1)
        elif {"micro_batch", "global_batch"} <= described.facts and "data" in known:
            known.pop("gradient_accumulation", None)
            product = batch_product(job, known)
        else:
            continue
        if product.factors and product.total % product.known:
            yield _of_product(described, product)


def _is_cut_down(job: Job) -> bool:
    """Whether Megatron-DeepSpeed takes smaller sizes than those given, because there are not as many GPUs."""
    tensor, pipeline = job.pins.tensor or 1, job.pins.pipeline or 1
    return tensor > job.gpus or pipeline > max(job.gpus // tensor, 1)


def _of_product(described: Described, product: Product) -> Violation:
    translate = in_options(described.job.framework.name)
    total = f"{product.total} GPUs" if product.key == "gpus" else f"{product.key}: {product.total}"
    message = translate(f"{product.describe()} does not divide {total}")
    where = described.locate(("global_batch", "micro_batch") if product.key != "gpus" else tuple(product.factors))
    return Violation(where=where, message=message, hint=translate(product.hint(whole=False)))


def _document_rule(rule: Rule) -> Rule:
    """The same rule on documents: its id, severity, source and requirement."""

    def check(submission: Submission) -> Violations:
        if rule.id in _JOB:
            return _by_job(rule, submission)
        if rule in (*WORLD_RULES, *BATCH_RULES):
            return _by_product(rule, submission)
        further = _of_any_replicas(submission) if rule.id == "BATCH011" else ()
        return chain(_by_layout(rule, submission), further)

    when: When = "silent" if rule.id in _SILENT else "init"
    prevents = (
        "padding that nobody sees"
        if rule.id == "MLM040"
        else "slower or other training, silently"
        if when == "silent"
        else "an assertion when the process groups and layers are built, after the queue"
    )
    check.__doc__ = f"{rule.title}\n\nPrevents: {prevents}\nFix: the sizes of the hint"
    reads = ("launch script", "AzureML job", "Megatron arguments")
    made: Rule = submissions.rule(rule.id, rule.severity, when, rule.source, reads=reads)(check)
    return made


_MEGATRON_PRODUCTS: Final = tuple(r for r in (*WORLD_RULES, *BATCH_RULES) if r.id[:3] in ("MLM", "MDS"))

_SHARED: Final[tuple[Rule, ...]] = (
    *_MEGATRON_PRODUCTS,
    *(rule for rule in LAYOUT_RULES if rule.id in _LAYOUT),
    *(rule for rule in JOB_RULES if rule.id in _JOB),
)

RULES: Final[tuple[Rule, ...]] = tuple(map(_document_rule, _SHARED))
