"""The rules of planning, applied: to a job, to its pins, to one layout, to one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from ..estimate.layout import Layout
from ..estimate.ledgers import Memory
from ..estimate.memory import memory
from ..estimate.whole_run import Run
from ..facts.facts import Facts, knows
from ..findings import Finding, Severity, Violation, Violations, in_file_order
from ..job.records import Job
from ..rule import Rule, findings_of, rules_in
from ..units import gib
from . import fit, length
from .fit import fits_device
from .job import data, model, training
from .layout import (
    expert,
    graphs,
    identities,
    overlap,
    patterns,
    pipeline,
    ramp,
    recompute,
    sequence,
    tensor,
    units,
    zero,
)
from .layout.identities import (
    BATCH_RULES,
    WORLD_RULES,
    batch_product,
    known_values,
    layout_of,
    pinned_values,
    whole_layout,
    world_product,
)
from .savers import memory_hint

JOB_RULES: Final = rules_in(data, model, training)
IDENTITY_RULES: Final = rules_in(identities)
LAYOUT_RULES: Final = rules_in(
    tensor, sequence, pipeline, expert, zero, units, recompute, overlap, ramp, patterns, graphs
)
FIT_RULES: Final = rules_in(fit)
LENGTH_RULES: Final = rules_in(length)


#: Share of device memory that a key has to free to be named.
LEAST_FREED: Final = 0.01
_SIZES: Final = ("tensor", "pipeline", "context")


_ALL: Final = (*LAYOUT_RULES, *IDENTITY_RULES)
#: by id, as records of rules take long to compare
_OF_PRODUCTS: Final = frozenset(rule.id for rule in (*WORLD_RULES, *BATCH_RULES))
#: The last answer: a search asks for the same job again and again.
_latest: tuple[Job | None, Iterable[Rule], tuple[Rule, ...]] = (None, (), ())


def binding_rules(job: Job, rules: Iterable[Rule] = LAYOUT_RULES) -> tuple[Rule, ...]:
    """The rules on layouts that apply to `job`."""
    global _latest
    if _latest[0] is not job or _latest[1] is not rules:
        _latest = (job, rules, tuple(rule for rule in rules if rule.applies(job)))
    return _latest[2]


def violations_of(rule: Rule, facts: Facts) -> Violations:
    """Return the violations of a rule on jobs or layouts by what files say of a run.

    There are none where the rule reads what isn't known.
    """
    job = facts.job
    if rule.checks == "job":
        reads = rule.in_files.facts if rule.in_files else ()
        if knows(job, *reads):
            for subject in rule.subjects(job):
                yield from rule.check(subject)
    elif rule.id in _OF_PRODUCTS and rule in (*WORLD_RULES, *BATCH_RULES):
        yield from _by_product(rule, facts)
    elif knows(job, *rule.columns.reads, *rule.columns.facts) and rule.applies(job):
        yield from rule.check((job, layout_of(pinned_values(job.pins))))


def _by_product(rule: Rule, facts: Facts) -> Violations:
    """Return the violation of a product: the sizes that are given have to divide the total, of GPUs
    or of sequences.
    """
    job, sizes = facts.job, pinned_values(facts.job.pins)
    if not rule.applies(job):
        return
    if rule in WORLD_RULES and knows(job, "gpus", "tensor", "pipeline", "context"):
        if job.engine.caps_sizes and sizes["tensor"] * sizes["pipeline"] > job.gpus:
            return  # it reduces sizes that are too large, which another rule reports
        product = world_product(job, {key: sizes[key] for key in _SIZES if sizes[key] > 1})
        product = replace(product, step=1)  # the GPUs of a file needn't be whole nodes
        where = [f"/layout/{name}" for name in product.factors]
    elif rule in BATCH_RULES and knows(job, "gpus", "data", "global_batch", "micro_batch"):
        product = batch_product(job, {key: sizes[key] for key in ("micro_batch", "data")})
        where = ["/training/global_batch", "/layout/micro_batch"]
    else:
        return
    if product.factors and product.total % product.known:
        yield Violation(facts.locate(*where), *product.explain(whole=False))


def check_job(job: Job) -> tuple[Finding, ...]:
    """Find every rule on facts alone that `job` breaks.

    Rules that know one program's options are left out.
    """
    return in_file_order(findings_of(JOB_RULES, job))


def check_pins(job: Job) -> tuple[Finding, ...]:
    """Find every rule that the pinned layout keys break.

    They break it whatever the search chooses for the others.
    """
    pinned = pinned_values(job.pins)
    known = known_values(job)
    decided = [
        rule
        for rule in binding_rules(job, _ALL)
        if any(name in pinned for name in rule.columns.reads)
        and all(name in known for name in rule.columns.reads)
    ]
    findings = list(findings_of(decided, (job, layout_of(known))))
    for rules, product in (
        (WORLD_RULES, world_product(job, known)),
        (BATCH_RULES, batch_product(job, known)),
    ):
        (rule,) = binding_rules(job, rules)
        written = [name for name in product.factors if name in pinned]
        # Factors of which some are still open have to divide the total.
        is_partial = len(product.factors) < len(rule.columns.reads)
        if written and is_partial and product.total % product.known:
            where = job.locate(f"/layout/{written[0]}")
            findings.append(rule.at(where, *product.explain(whole=False)))
    return in_file_order(findings)


def check_layout(job: Job, layout: Layout, ledger: Memory | None = None) -> tuple[Finding, ...]:
    """Find every rule that one full layout breaks, also warnings.

    With its ledger, the capacities that it exceeds are found too.
    """
    broken = findings_of(binding_rules(job, _ALL), (job, layout))
    return in_file_order((*broken, *(check_fit(job, layout, ledger) if ledger else ())))


def is_legal(job: Job, layout: Layout) -> bool:
    """Tell whether a layout breaks no rule; whether it fits is another question."""
    rules = (rule for rule in binding_rules(job, _ALL) if rule.severity is Severity.ERROR)
    return all(rule.allows(job, layout) for rule in rules)


#: The `model_type`s whose code Liger replaces by its kernels, where it is told to; it leaves the
#: code of others as it is.
#: **Source**: linkedin/Liger-Kernel src/liger_kernel/transformers/monkey_patch.py @ ead96b61
#: (0.8.2), MODEL_TYPE_TO_APPLY_LIGER_FN.
_BY_LIGER: Final = (
    "deepseek_v4 exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text glm4 "
    "glm4v glm4v_moe gpt_oss granite hunyuan_v1_dense hunyuan_v1_moe internvl llama llama4 "
    "llama4_text llava ministral mistral mixtral mllama mllama_text_model nemotron olmo2 olmo3 "
    "paligemma phi3 pixtral qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text qwen3 "
    "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl "
    "qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text smollm3 smolvlm"
)


def lighter(job: Job) -> Iterator[tuple[str, Any, Job]]:
    """Yield each key of `training` that saves memory and may change results.

    It comes with its value, and the job that has it.

    Keys that the job sets, and values that framework or accelerator don't have, are left out.
    """
    broken = {finding.rule for finding in check_job(job)}
    for name, value in _lighter_values(job):
        changed: dict[str, Any] = {name: value}
        if not job.framework.can_say(changed):
            continue
        changed_job = replace(job, training=replace(job.training, **changed))
        if {finding.rule for finding in check_job(changed_job)} <= broken:
            yield name, value, changed_job


def _lighter_values(job: Job) -> Iterator[tuple[str, Any]]:
    """Yield the keys of `training` that a job leaves open, each with a value that saves memory."""
    training, engine = job.training, job.engine
    may_use_liger = training.kernels is None and job.model.family in _BY_LIGER.split()
    if may_use_liger and not job.fuses_kernels:
        yield "kernels", "fused"
    loss = training.cross_entropy or job.framework.cross_entropy
    if loss == "fused" and engine.fused_logit_bytes > engine.unfused_logit_bytes:
        yield "cross_entropy", "unfused"
    if training.gradient_dtype is None and training.precision != "fp32":
        yield "gradient_dtype", "same"
    if job.is_narrow and not training.fp8_parameters:
        yield "fp8_parameters", True
    if training.moment_dtype is None:
        yield "moment_dtype", "bf16"
    if training.optimizer == "adamw":
        yield "optimizer", "adamw-8bit"


def check_fit(job: Job, layout: Layout, ledger: Memory) -> tuple[Finding, ...]:
    """Find every capacity that one layout's ledger exceeds.

    The hint of one on device memory is `hint_of_memory`.
    """
    findings = in_file_order(findings_of(FIT_RULES, (job, layout, ledger)))
    return tuple(
        replace(each, hint=hint_of_memory(job, layout, ledger))
        if each.rule == fits_device.id
        else each
        for each in findings
    )


def hint_of_memory(job: Job, layout: Layout, ledger: Memory) -> str:
    """Say what makes a layout fit in device memory, and what a run then needs.

    Changes of the layout come first, then the keys of `training` that help.
    """
    hint = hint_of_layouts(job, layout, figures=True)
    freed = []
    for key, value, changed_job in lighter(job):
        need = float(memory(changed_job, layout).required_bytes)
        freed.append((float(ledger.required_bytes) - need, job.says(key, value)))
    texts = [
        f"{said} ({gib(freed_bytes)} GiB less)"
        for freed_bytes, said in sorted(freed, reverse=True)
        if freed_bytes >= LEAST_FREED * ledger.capacity_bytes
    ]
    return f"{hint}; where results may change, also {', '.join(texts)}" if texts else hint


def hint_of_layouts(job: Job, layout: Layout, *, figures: bool = False) -> str:
    """Say which changes of a layout make it fit in device memory.

    They break no rule that the layout keeps, of those whose facts are known. `figures` adds what
    the run needs with each.
    """
    kept = [
        rule
        for rule in _ALL
        if rule.severity is Severity.ERROR
        and knows(job, *rule.columns.facts)
        and rule.applies(job)
        and rule.allows(job, layout)
    ]

    def ledger_of(changed: Layout) -> Memory | None:
        is_legal = all(rule.allows(job, changed) for rule in kept)
        return memory(job, changed) if is_legal else None

    def fits(changed: Layout, need: Memory) -> bool:
        return all(rule.allows(job, changed, need) for rule in FIT_RULES)

    return memory_hint(job, layout, ledger_of, fits, figures=figures)


def check_length(
    job: Job, layout: Layout, run: Run | None, fastest_fraction: float, slowest_fraction: float
) -> tuple[Finding, ...]:
    """Find what is wrong with the length of a run against its time limit."""
    return in_file_order(
        findings_of(LENGTH_RULES, (job, layout, run, fastest_fraction, slowest_fraction))
    )


def check_pinned_fit(job: Job) -> tuple[Finding, ...]:
    """Find every capacity that a job exceeds whose layout is pinned as a whole.

    There are none where the search has a choice.
    """
    layout = pinned_layout(job)
    return check_fit(job, layout, memory(job, layout)) if layout else ()


def pinned_layout(job: Job) -> Layout | None:
    """The layout that a job pins as a whole, with what follows from its batch; else None."""
    known = known_values(job)
    rest = known.get("data", 0) * known.get("micro_batch", 0)
    if rest and job.training.global_batch % rest == 0:
        known.setdefault("gradient_accumulation", job.training.global_batch // rest)
    return whole_layout(known)
