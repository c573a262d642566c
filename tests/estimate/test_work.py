"""What the compute of a step is made of, and its operations on the roofline."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.estimate.compute import core_time
from dsgen.estimate.layout import Layout
from dsgen.estimate.products import peak_flops_per_s
from dsgen.estimate.rates import rates
from dsgen.estimate.roofline import operations
from dsgen.estimate.step_time import COMPUTE_PARTS, compute_parts
from dsgen.search import SearchResult
from tests.examples import FOLDER
from tests.jobs import job

EXAMPLES = ("gpt3-175b-azure", "mixtral-8x7b", "llama-3-8b-lora", "qwen3-next-80b")


def _plans(name: str) -> tuple[dsgen.Plan, ...]:
    answer = dsgen.search(dsgen.load_job(FOLDER / f"{name}.yaml"), top=3)
    assert isinstance(answer, SearchResult)
    return answer.plans


@pytest.mark.parametrize("name", EXAMPLES)
def test_kinds_of_work_add_up_to_the_compute(name: str) -> None:
    """No kind is negative, and their sum is the compute of the step."""
    for plan in _plans(name):
        parts = compute_parts(plan.job, plan.layout)
        assert [*parts] == [*COMPUTE_PARTS] and min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(float(plan.step_time.compute_s))
        assert (parts["experts"] > 0) == (plan.job.model.dense_layers < plan.job.model.layers)
        assert parts["products"] > 0 and parts["attention"] > 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_operations_are_below_the_roof(name: str) -> None:
    """No operation is faster than the arithmetic of the card or its memory allows."""
    plan = _plans(name)[0]
    accelerator = plan.job.cluster.accelerator
    peak = peak_flops_per_s(plan.job, narrow=plan.job.training.is_narrow)
    found = operations(plan.job, plan.layout)
    assert {each.name.split(",")[0] for each in found} >= {"attention", "output"}
    assert len({each.name for each in found}) == len(found)
    for each in found:
        roof = min(peak, each.flops / each.traffic_bytes * accelerator.memory_bytes_per_s)
        assert 0 < each.flops / each.seconds <= roof, each


@pytest.mark.parametrize(("cluster", "share"), [("dgx-a100-80gb", 1.0), ("dgx-h100", 0.6)])
def test_flash_attention_2_is_as_fast_as_cudnn_on_ampere_alone(cluster: str, share: float) -> None:
    """PyTorch's flash attention is Ampere's best kernel, and reaches 0.6 of Hopper's."""
    cores = []
    for framework in ("huggingface", "megatron-lm"):
        own = job(framework=framework, cluster=f"nvidia/{cluster}", gpus=8)
        core = core_time(own, Layout(data=8), own.model.averaged.largest.mixer)
        cores.append(core.forward_s - rates(own).attention_start_s)
    assert cores[1] / cores[0] == pytest.approx(share)
