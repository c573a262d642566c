"""The memory ledger against Megatron-core's own model and gradient buffers, rank by rank.

Not started, for want of a GPU: its DistributedOptimizer, which asks for CUDA's tensor types,
Transformer Engine, and with both the precision-aware optimizer and fp8 parameters. What the
optimizer shards is the buffers' elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsgen.catalog.layers.dense import Dense
from dsgen.catalog.layers.experts import Experts
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import every_stage
from dsgen.estimate.stages import stage_contents, vocabulary_rows
from dsgen.job.records import Job
from tests.jobs import job
from tests.needs import needs_megatron
from tests.workers import answers, once

pytestmark = [pytest.mark.integration, needs_megatron, pytest.mark.xdist_group("engine memory")]

WORKER = Path(__file__).with_name("megatron_memory_worker.py")
DENSE: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 128,
    "gated_mlp": True,
    "position_embedding": "rotary",
    "tie_word_embeddings": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "tied": {**DENSE, "tie_word_embeddings": True},
    "experts": {
        **DENSE,
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "shared": {
        **DENSE,
        "model_type": "qwen2_moe",
        "moe_intermediate_size": 256,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 512,
    },
}


class Case(NamedTuple):
    """One rank of one layout."""

    model: str
    tensor: int
    pipeline: int
    expert: int
    stage: int
    sharded: bool  #: by the distributed optimizer
    sums: str  #: gradient_dtype
    depths: int = 0  #: of multi-token prediction

    @property
    def label(self) -> str:
        """For the test's name."""
        return "-".join(map(str, self))


def cases() -> Iterator[Case]:
    """Every stage of layouts of each kind of model."""
    for model in MODELS:
        routed = model in ("experts", "shared")
        for tensor, pipeline, expert in (
            (1, 1, 1),
            (4, 2, 1),
            (2, 4, 1),
            *(((1, 2, 8), (2, 2, 4)) if routed else ()),
        ):
            for stage in range(pipeline):
                yield Case(
                    model, tensor, pipeline, expert, stage, sharded=stage % 2 == 0, sums="fp32"
                )
        for tensor, pipeline, stage in ((1, 1, 0), (2, 2, 0), (2, 2, 1)):
            yield Case(model, tensor, pipeline, 1, stage, sharded=True, sums="fp32", depths=2)


CASES = list(cases())
WORLD = 16


def planned(case: Case) -> tuple[Job, Layout]:
    """The same as a job and a layout."""
    whole = job(
        model=MODELS[case.model],
        gpus=WORLD,
        training__sequence_length=128,
        training__global_batch=WORLD,
        training__mtp_depths=case.depths,
        framework="megatron-lm",
    )
    layout = Layout(
        data=WORLD // case.tensor // case.pipeline,
        tensor=case.tensor,
        pipeline=case.pipeline,
        expert=case.expert,
        expert_tensor=case.tensor,
        sequence_parallel=case.tensor > 1,
        zero_stage=int(case.sharded),
    )
    return whole, layout


def asked(case: Case) -> dict[str, Any]:
    """What the worker is told: the model's shape in the words of Megatron's config."""
    whole, layout = planned(case)
    model = whole.model
    mlps = (model.part(Dense), model.part(Experts))
    config: dict[str, Any] = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "gated_linear_unit": all(part.gated for part in mlps if part is not None),
        "add_bias_linear": False,
        "normalization": "RMSNorm",
        "tensor_model_parallel_size": case.tensor,
        "pipeline_model_parallel_size": case.pipeline,
        "sequence_parallel": False,  # of no parameter; torch's own normalisation refuses it
        "expert_model_parallel_size": case.expert,
        "expert_tensor_parallel_size": case.tensor,
        "mtp_num_layers": case.depths or None,
    }
    config |= {"num_query_groups": model.kv_heads, "kv_channels": model.head_dim}
    if (routed := model.part(Experts)) is not None:
        config |= {
            "num_moe_experts": model.experts,
            "moe_router_topk": routed.per_token,
            "moe_ffn_hidden_size": model.moe_ffn,
            "moe_shared_expert_intermediate_size": routed.width or None,
            "moe_layer_freq": [0] * model.dense_layers + [1] * (model.layers - model.dense_layers),
            "moe_shared_expert_gate": routed.shared_gate,
            "moe_token_dispatcher_type": "alltoall",
        }
    return {
        **case._asdict(),
        "config": config,
        "world": WORLD,
        "rows": int(vocabulary_rows(whole, layout)) * case.tensor,
        "tied": model.tied_embeddings,
        "wide": case.sums == "fp32",
    }


@once
def counted() -> dict[Case, dict[str, int]]:
    """What Megatron allocates, all cases in one process."""
    return dict(zip(CASES, answers(WORKER, [asked(case) for case in CASES]), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_parameters(case: Case) -> None:
    """A rank's parameters, of experts and others, are Megatron's to 0.1 %."""
    held, found = stage_contents(*planned(case), case.stage), counted()[case]
    assert float(held.shared + held.experts) == pytest.approx(
        found["shared"] + found["experts"], rel=1e-3
    )
    if case.expert > 1:  # else Megatron reduces experts with all else
        assert float(held.experts) == pytest.approx(found["experts"], rel=1e-3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_buffers(case: Case) -> None:
    """The buffers of gradients and weights, padding included, are the ledger's to 1 %."""
    whole, layout = planned(case)
    ledger = every_stage(whole, layout)[case.stage]
    assert float(ledger.gradients_bytes) == pytest.approx(counted()[case]["gradients"], rel=0.01)
    if case.sharded:
        assert float(ledger.parameters_bytes) == pytest.approx(counted()[case]["weights"], rel=0.01)
