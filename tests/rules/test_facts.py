"""Facts: what isn't known is missing, and a rule reads no more than it says."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from dsgen.catalog.model import Model
from dsgen.estimate.layout import FIELDS
from dsgen.facts.facts import UNKNOWN, Facts, completed, knows, partial
from dsgen.findings import Location
from dsgen.job.records import Cluster, Job, Origin, Pins, Training
from dsgen.programs.job_rules import PLANNING_RULES
from dsgen.rule import Rule
from dsgen.rules.layout.identities import layout_of, pinned_values
from dsgen.rules.run import IDENTITY_RULES, LAYOUT_RULES, violations_of
from tests.programs.plans import MODELS, make_job

IN_FILES = [rule for rule in PLANNING_RULES if rule.in_files is not None]
MACHINES = ("accelerators_per_node", "accelerator")
FRAMEWORKS = ("megatron-lm", "megatron-deepspeed", "deepspeed")
NAMES = ("gpt3-175b", "llama-3-8b", "mixtral")
DRAWS = 100
#: What files may leave open of a model, and of what is trained.
OPEN = (
    *(
        "layers",
        "heads",
        "kv_heads",
        "head_dim",
        "vocab",
        "max_positions",
        "hidden",
        "ffn",
        "experts",
        "moe_ffn",
    ),
    *("tensor_cuts", "context_cuts", "mlp_cuts", "expert_cuts", "exchanged_heads", "keeps_ring"),
    *("linear_bias", "attention_sinks", "sliding_window"),
    # No rule reads the parts: it couldn't say which of their sizes it needs.
    *("stack", "averaged", "mixers", "attentions", "softmax", "feed_forward", "part"),
    *("sequence_length", "global_batch", "precision", "optimizer", "attention"),
)


def reads_of(rule: Rule) -> set[str]:
    """All that a rule says it reads."""
    return {
        *rule.columns.reads,
        *rule.columns.facts,
        *(rule.in_files.facts if rule.in_files else ()),
    }


class Seen:
    """A model of which some facts are known; others, and its layers, raise `AttributeError`."""

    def __init__(self, model: Model, reads: set[str]) -> None:
        self.model, self.hidden_facts = model, set(OPEN) - reads

    def __getattr__(self, name: str) -> Any:
        if name in self.hidden_facts:
            raise AttributeError(name)
        return getattr(self.model, name)


def stripped(job: Job, values: dict[str, Any], reads: set[str]) -> Job:
    """A job of which no more is known than some facts, with the layout of these values."""

    def less(record: Any) -> Any:
        known = {field.name: getattr(record, field.name) for field in fields(record)}
        return partial(type(record), **{**known, **dict.fromkeys(set(OPEN) - reads, UNKNOWN)})

    return partial(
        Job,
        name=job.name,
        framework=job.framework,
        deepspeed_version=job.deepspeed_version,
        model=Seen(job.model, reads),  # type: ignore[arg-type]
        cluster=partial(
            Cluster, **{name: getattr(job.cluster, name) for name in MACHINES if name in reads}
        ),
        gpus=job.gpus if "gpus" in reads else UNKNOWN,
        training=less(job.training),
        pins=Pins(**{name: value for name, value in values.items() if name in reads}),
        origin=Origin(path="run.sh"),
    )


def values(rng: random.Random) -> dict[str, Any]:
    """Values of a layout, of which many break some rule."""
    sizes = {name: rng.choice([1, 2, 3, 4, 8, 16]) for name in FIELDS}
    flags = {
        name: rng.random() < 0.5
        for name in ("sequence_parallel", "tensor_overlap", "expert_overlap")
    }
    others = {
        "recompute": rng.choice(["none", "selective", "full"]),
        "offload": rng.choice(["none", "optimizer", "optimizer+parameters"]),
        "zero_stage": rng.randint(0, 3),
        "recompute_modules": rng.choice([("core_attn",), ("moe",)]),
    }
    return {**sizes, **flags, **others, "offload_fraction": 1.0}


@cache
def job_of(framework: str, model: str) -> Job:
    """A job whose batch and GPUs few layouts divide."""
    return make_job(framework, MODELS[model], gpus=24, global_batch=30)


@cache
def drawn(*frameworks: str) -> list[tuple[Job, dict[str, Any]]]:
    """Jobs of these frameworks with values of a layout: the same for every rule, drawn once."""
    rng = random.Random(20)
    return [(job_of(rng.choice(frameworks), rng.choice(NAMES)), values(rng)) for _ in range(DRAWS)]


@pytest.mark.parametrize("rule", IN_FILES, ids=lambda rule: rule.id)
def test_a_rule_reads_no_more_than_it_says(rule: Rule) -> None:
    """Where no more is known than a rule says it reads, it is judged, with message and hint; with
    less it is silent.
    """
    reads = reads_of(rule) or set(FIELDS) | {"gpus", "global_batch"}
    for whole, layout in drawn(*FRAMEWORKS):
        job = replace(whole, training=replace(whole.training, precision="fp8"))
        for violation in violations_of(rule, Facts(job=stripped(job, layout, reads))):
            assert violation.message and violation.where.path == "run.sh", layout
        for name in reads_of(rule):
            less = Facts(job=stripped(job, layout, reads - {name}))
            assert not list(violations_of(rule, less)), (name, layout)


@pytest.mark.parametrize("rule", [*LAYOUT_RULES, *IDENTITY_RULES], ids=lambda rule: rule.id)
def test_a_rule_reads_no_more_of_a_layout(rule: Rule) -> None:
    """Of a job, a rule on layouts reads the keys that it says, whatever else the search has still
    to choose.
    """
    for whole, layout in drawn(*FRAMEWORKS, "huggingface"):
        job = replace(whole, pins=Pins(**layout))
        if rule.columns.binds(job):
            known = {
                name: value
                for name, value in pinned_values(job.pins).items()
                if name in rule.columns.reads
            }
            for violation in rule.check((job, layout_of(known))):
                assert violation.message, layout


def test_what_is_not_known_cannot_be_read() -> None:
    """Reading an unknown value raises; what has a default has it; a record may be completed."""
    training = partial(Training, precision="bf16", batch_ramp=UNKNOWN)
    assert (training.precision, training.kernels) == ("bf16", None)
    for name in ("optimizer", "batch_ramp"):
        with pytest.raises(AttributeError):
            getattr(training, name)
    assert completed(training, optimizer="sgd").optimizer == "sgd"


def test_facts_are_known_by_their_names() -> None:
    """Keys of the layout, and fields of the job and its records, are known or not; written ones
    have their places.
    """
    place = Location(path="run.sh", line=3)
    job = partial(
        Job,
        cluster=partial(Cluster, accelerators_per_node=8),
        training=partial(Training, precision="bf16"),
        pins=Pins(tensor=2, pipeline=1),
        origin=Origin(
            path="run.sh",
            locations={"/layout/tensor": place},
            start=Location(path="run.sh", line=1),
        ),
    )
    facts = Facts(job=job)
    assert facts.knows("tensor", "pipeline", "precision", "accelerators_per_node", "cluster")
    assert not any(
        map(facts.knows, ("data", "gpus", "model", "heads", "link_domain", "sequence_length"))
    )
    assert facts.locate("/layout/pipeline", "/layout/tensor") is place
    assert facts.locate("/layout/pipeline").line == 1
    assert knows(job_of("megatron-lm", "llama-3-8b"), "heads", "gpus", "cluster", "precision")
