"""Facts: what isn't known is missing, and a rule reads no more than it says."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.catalog.model import Model
from dsgen.estimate.layout import FIELDS
from dsgen.facts.facts import UNKNOWN, Facts, completed, knows, partial
from dsgen.findings import Location
from dsgen.job.records import Cluster, Job, Origin, Pins, Training
from dsgen.programs.job_rules import PLANNING_RULES
from dsgen.rule import Rule
from dsgen.rules.layout.identities import layout_of, pinned_values
from dsgen.rules.run import IDENTITY_RULES, LAYOUT_RULES, violations_of
from tests.programs.plans import GPT, LLAMA, MIXTRAL, make_job

IN_FILES = [rule for rule in PLANNING_RULES if rule.in_files is not None]
MACHINES = ("accelerators_per_node", "accelerator")
FRAMEWORKS = ("megatron-lm", "megatron-deepspeed", "deepspeed")
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


@st.composite
def values(draw: st.DrawFn) -> dict[str, Any]:
    """Values of a layout, of which many break some rule."""
    sizes = {name: draw(st.sampled_from([1, 2, 3, 4, 8, 16])) for name in FIELDS}
    flags = {
        name: draw(st.booleans())
        for name in ("sequence_parallel", "tensor_overlap", "expert_overlap")
    }
    recompute = draw(st.sampled_from(["none", "selective", "full"]))
    offload = draw(st.sampled_from(["none", "optimizer", "optimizer+parameters"]))
    stage, modules = draw(st.integers(0, 3)), draw(st.sampled_from([("core_attn",), ("moe",)]))
    others = {
        "recompute": recompute,
        "offload": offload,
        "zero_stage": stage,
        "recompute_modules": modules,
    }
    return {**sizes, **flags, **others, "offload_fraction": 1.0}


@pytest.mark.parametrize("rule", IN_FILES, ids=lambda rule: rule.id)
@settings(max_examples=25)
@given(
    st.sampled_from(FRAMEWORKS),
    st.sampled_from([GPT, LLAMA, MIXTRAL]),
    values(),
)
def test_a_rule_reads_no_more_than_it_says(
    rule: Rule, framework: str, model: Any, layout: dict[str, Any]
) -> None:
    """Where no more is known than a rule says it reads, it is judged, with message and hint; with
    less it is silent.
    """
    job = make_job(framework, model, gpus=24, global_batch=30)
    job = replace(job, training=replace(job.training, precision="fp8"))
    reads = reads_of(rule) or set(FIELDS) | {"gpus", "global_batch"}
    for violation in violations_of(rule, Facts(job=stripped(job, layout, reads))):
        assert violation.message and violation.where.path == "run.sh"
    for name in reads_of(rule):
        assert not list(violations_of(rule, Facts(job=stripped(job, layout, reads - {name}))))


@pytest.mark.parametrize("rule", [*LAYOUT_RULES, *IDENTITY_RULES], ids=lambda rule: rule.id)
@settings(max_examples=25)
@given(
    st.sampled_from([*FRAMEWORKS, "huggingface"]), st.sampled_from([GPT, LLAMA, MIXTRAL]), values()
)
def test_a_rule_reads_no_more_of_a_layout(
    rule: Rule, framework: str, model: Any, layout: dict[str, Any]
) -> None:
    """Of a job, a rule on layouts reads the keys that it says, whatever else the search has still
    to choose.
    """
    job = replace(make_job(framework, model, gpus=24, global_batch=30), pins=Pins(**layout))
    if rule.columns.binds(job):
        known = {
            name: value
            for name, value in pinned_values(job.pins).items()
            if name in rule.columns.reads
        }
        for violation in rule.check((job, layout_of(known))):
            assert violation.message


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
    assert knows(make_job("megatron-lm", GPT), "heads", "gpus", "cluster", "precision")
