"""Checks of pins and layouts: which rules speak, where they point, and what would pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.ledgers import Memory
from dsgen.findings import Finding, Severity
from dsgen.job.records import Job
from dsgen.rules.run import binding_rules, check_layout, check_pins
from dsgen.units import GIB
from tests.rules.jobs import MOE, job

#: By framework, layouts of the default job that break nothing.
LEGAL = {
    "deepspeed": (Layout(data=128, tensor=8, zero_stage=2, gradient_accumulation=12),),
    "huggingface": (
        Layout(
            data=512, context=2, zero_stage=3, gradient_accumulation=3, recompute=Recompute.FULL
        ),
    ),
    "megatron-deepspeed": (
        Layout(
            data=16,
            tensor=8,
            pipeline=8,
            zero_stage=1,
            gradient_accumulation=96,
            sequence_parallel=True,
        ),
        Layout(
            data=256,
            context=4,
            zero_stage=3,
            gradient_accumulation=6,
            offload=Offload.OPTIMIZER_AND_PARAMETERS,
        ),
    ),
    "megatron-lm": (
        Layout(
            data=8,
            tensor=8,
            pipeline=16,
            virtual_pipeline=3,
            zero_stage=1,
            gradient_accumulation=192,
        ),
        Layout(data=32, tensor=4, context=8, zero_stage=1, micro_batch=3, gradient_accumulation=16),
    ),
}
KEYS = tuple(Layout(data=1).to_dict())

FRAMEWORKS = ("deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm")


def errors(job: Job) -> dict[str, Finding]:
    """The errors of a job's pins, by rule."""
    return {
        finding.rule: finding for finding in check_pins(job) if finding.severity is Severity.ERROR
    }


def test_pinned_tensor_gets_the_rules_own_message() -> None:
    """`tensor: 3` with 128 heads is the heads' rule, at its line, with the sizes that pass every
    tensor rule.
    """
    found = errors(job(gpus=96, model={"heads": 128, "kv_heads": 128}, pins={"tensor": 3}))
    assert set(found) == {"MLM004"}
    assert found["MLM004"].message == "tensor: 3 does not divide the 128 attention heads"
    assert found["MLM004"].hint == "use tensor: 1, 2, 4 or 8"
    assert found["MLM004"].where.line == 10


def test_finding_points_at_the_key_the_user_wrote() -> None:
    """A rule on two keys of which one is pinned and one follows from the job points at the pinned
    one.
    """
    found = errors(job(gpus=1, pins={"sequence_parallel": True}))
    assert found["MLM010"].where.pointer == "/layout/sequence_parallel"
    assert found["MLM010"].where.line == 10


def test_rule_with_a_free_variable_stays_silent() -> None:
    """Pins that some choice of the other keys makes legal are no finding."""
    assert (
        check_pins(job(pins={"zero_stage": 1, "sequence_parallel": True, "virtual_pipeline": 2}))
        == ()
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_pins_no_findings(framework: str) -> None:
    """Nothing is said about keys that the user left to the search."""
    assert check_pins(job(framework)) == ()
    assert check_pins(job(framework, gpus=1)) == ()


def test_partial_world_must_divide_the_gpus() -> None:
    """Known factors of the world that don't divide it are refused, with the nearest sizes and GPU
    counts.
    """
    found = errors(job(pins={"data": 3, "tensor": 8}))
    assert found["MLM001"].message == "data: 3 × tensor: 8 = 24 does not divide gpus: 1024"
    assert found["MLM001"].hint == "use data: 1, 2 or 4, or gpus: 1008 or 1032"
    assert found["MLM001"].where.pointer == "/layout/data"


def test_whole_world_must_equal_the_gpus() -> None:
    """When every factor of the world is known, the product has to be the number of GPUs."""
    found = errors(job(pins={"data": 8, "tensor": 8, "pipeline": 8, "context": 1}))
    assert (
        found["MLM001"].message
        == "data: 8 × tensor: 8 × pipeline: 8 × context: 1 = 512 is not gpus: 1024"
    )
    assert found["MLM001"].hint == "use data: 16, or gpus: 512"


def test_hinted_data_divides_gpus_and_batch() -> None:
    """`data` is a factor of both products, so 97 replicas are no way out of a batch of 97 on 64
    GPUs.
    """
    found = errors(job(gpus=64, training={"global_batch": 97}, pins={"data": 8}))
    assert found["MLM002"].hint == "use data: 1, or global_batch: 96 or 104"


def test_partial_batch_must_divide_the_global_batch() -> None:
    """Known factors of the batch that don't divide it are refused, with the nearest values
    that do.
    """
    found = errors(job("megatron-deepspeed", pins={"micro_batch": 5}))
    assert found["MDS008"].message == "micro_batch: 5 does not divide global_batch: 1536"
    assert found["MDS008"].hint == "use micro_batch: 3, 4 or 6, or global_batch: 1535 or 1540"


def test_data_that_follows_counts_in_the_batch() -> None:
    """The number of replicas that the other pins leave is checked against the global batch."""
    found = errors(
        job(gpus=1000, pins={"tensor": 8, "pipeline": 1, "context": 1, "micro_batch": 1})
    )
    assert (
        found["MLM002"].message
        == "micro_batch: 1 × data: 125 = 125 does not divide global_batch: 1536"
    )
    assert found["MLM002"].where.pointer == "/layout/micro_batch"


def test_keys_that_leave_no_choice_are_known() -> None:
    """The Trainer has one stage and a dense model no experts: pins against that are refused
    alone.
    """
    assert "HF020" in errors(job("huggingface", pins={"pipeline": 2}))
    assert "MOE005" in errors(job(pins={"expert": 2}))
    assert "PIPE016" not in errors(job("huggingface", pins={"offload": "optimizer"}))


def test_pinned_words_are_read() -> None:
    """Pins given as words, such as recompute and offload, are checked like numbers."""
    assert "ACT006" in errors(job("deepspeed", pins={"recompute": "selective"}))
    assert "ZERO006" in errors(
        job("megatron-deepspeed", pins={"offload": "optimizer+parameters", "zero_stage": 2})
    )


def test_all_findings_come_in_file_order() -> None:
    """Every broken pin is reported at once, from the top of the file."""
    found = check_pins(job(pins={"zero_stage": 3, "pipeline": 2, "tensor": 5, "expert": 2}))
    assert [finding.rule for finding in found] == [
        "MLM042",
        "MLM001",
        "MLM004",
        "MLM006",
        "NODE002",
        "MOE005",
    ]


def test_layout_is_checked_whole() -> None:
    """A full layout is checked by every rule that binds, identities and warnings included."""
    broken = {
        finding.rule
        for finding in check_layout(
            job(), Layout(data=100, tensor=4, pipeline=2, zero_stage=2, gradient_accumulation=2)
        )
    }
    assert broken == {"MLM001", "MLM002", "MLM042"}


def test_sound_layout_has_no_findings() -> None:
    """The published layout of GPT-3 175B on 1,024 A100s breaks nothing."""
    layout = Layout(
        data=16,
        tensor=8,
        pipeline=8,
        zero_stage=1,
        gradient_accumulation=96,
        sequence_parallel=True,
    )
    for framework in ("megatron-deepspeed", "megatron-lm"):
        assert check_layout(job(framework), layout) == ()


def test_ledger_is_checked_with_the_layout() -> None:
    """With a ledger, what doesn't fit is a finding too."""
    layout = Layout(data=16, tensor=8, pipeline=8, zero_stage=1, gradient_accumulation=96)
    figures = dict.fromkeys(Memory.__dataclass_fields__, 0)
    memory = Memory(**{**figures, "required_bytes": 90 * GIB, "capacity_bytes": 80 * GIB})
    assert [finding.rule for finding in check_layout(job(), layout, memory)] == ["MEM001"]


def test_binding_rules_are_the_frameworks_own() -> None:
    """A job is bound by the rules of its framework and of its kind of model, and by no others."""
    dense = {rule.id for rule in binding_rules(job("megatron-lm"))}
    sparse = {rule.id for rule in binding_rules(job("megatron-lm", model=MOE))}
    assert "MLM035" in sparse - dense
    assert "MOE005" in dense - sparse
    assert not {"MDS004", "PIPE001", "TP004"} & dense


@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(deadline=None)
@given(data=st.data())
def test_pins_of_a_legal_layout_are_legal(framework: str, data: st.DataObject) -> None:
    """Whatever keys of a legal layout the user pins, no error is raised."""
    layout = data.draw(st.sampled_from(LEGAL[framework]))
    assert not [f for f in check_layout(job(framework), layout) if f.severity is Severity.ERROR]
    kept = data.draw(st.sets(st.sampled_from(KEYS)))
    pins = {name: value for name, value in layout.to_dict().items() if name in kept}
    assert errors(job(framework, pins=pins)) == {}
