"""Laws over random specs: plans satisfy both identities and break no rule; DeepSpeed and `validate`
take the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.findings import InvalidJob
from dsgen.search.plan import Infeasible, SearchResult
from tests.deepspeed_parser import batch_triple
from tests.needs import needs_deepspeed
from tests.planned import complaints, meant_triple, parse_plan

MODELS = [
    "gpt2",
    "gpt3-6.7b",
    "llama-2-7b",
    "llama-3-8b",
    "llama-3-70b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
]
CLUSTERS = [
    "azure/standard_nd96amsr_a100_v4",
    "azure/standard_nd40rs_v2",
    "nvidia/dgx-h100",
    "aws/p4d.24xlarge",
    "gcp/a3-highgpu-8g",
    "idris/jean-zay-v100-node",
]
FRAMEWORKS = ["deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm"]
#: Plans that the law is to be seen on.
PLANS = 100


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Specs that the schema takes; some turn out invalid or infeasible."""
    spec: dict[str, Any] = {
        "framework": draw(st.sampled_from(FRAMEWORKS)),
        "model": draw(st.sampled_from(MODELS)),
        "cluster": draw(st.sampled_from(CLUSTERS)),
        "nodes": draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64])),
        "training": {
            "sequence_length": draw(st.sampled_from([512, 1024])),
            "global_batch": draw(st.integers(1, 64)) * draw(st.sampled_from([4, 8, 24, 32, 64])),
            "precision": draw(st.sampled_from(["fp16", "bf16", "fp32"])),
            "optimizer": draw(st.sampled_from(["adamw", "adam", "sgd"])),
        },
        "launch": {
            "target": draw(st.sampled_from(["slurm", "azureml", "shell"])),
            "shell": {"hostfile": "hosts"},
        },
    }
    layout = {
        "tensor": st.sampled_from([1, 2, 4]),
        "pipeline": st.sampled_from([1, 2]),
        "zero_stage": st.integers(0, 3),
        "micro_batch": st.sampled_from([1, 2]),
        "recompute": st.sampled_from(["none", "full"]),
        "offload": st.sampled_from(["none", "optimizer"]),
    }
    pinned = draw(st.sets(st.sampled_from(sorted(layout)), max_size=2))
    spec["layout"] = {name: draw(layout[name]) for name in sorted(pinned)}
    return spec


@needs_deepspeed
@pytest.mark.integration
def test_every_plan_is_sound_and_accepted() -> None:
    """Of random specs, 100 plans: identities and pins hold, no rule is broken, DeepSpeed and
    `validate` accept.
    """
    seen = {"plan": 0, "infeasible": 0, "invalid": 0}

    @settings(
        max_examples=300,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(specs())
    def law(spec: dict[str, Any]) -> None:
        if seen["plan"] < PLANS:
            seen[_outcome(spec)] += 1

    law()
    assert seen["plan"] >= PLANS, seen


def _outcome(spec: dict[str, Any]) -> str:
    """Plan one spec and check what came of it."""
    try:
        job = dsgen.load_job(spec)
    except InvalidJob as invalid:
        assert invalid.findings
        return "invalid"
    result = dsgen.search(job, top=1)
    if isinstance(result, Infeasible):
        assert result.binding_rule
        return "infeasible"
    _check_plan(spec, result)
    return "plan"


def _check_plan(spec: dict[str, Any], result: SearchResult) -> None:
    plan = result.plans[0]
    layout, job = plan.layout, plan.job
    assert layout.data * layout.tensor * layout.pipeline * layout.context == job.gpus
    assert (
        layout.micro_batch * layout.gradient_accumulation * layout.data == job.training.global_batch
    )
    assert not [f for f in plan.findings if f.severity.value == "error"]
    assert {name: layout.to_dict()[name] for name in spec["layout"]} == spec["layout"]
    json.loads({file.path: file.text for file in dsgen.render(plan)}["plan.json"])
    if job.engine.sharding == "partitions":
        assert batch_triple(parse_plan(plan)) == meant_triple(plan)
    with TemporaryDirectory() as folder:
        spec_path = Path(folder) / "job.yaml"
        spec_path.write_text(yaml.safe_dump(spec), encoding="utf-8")
        told = complaints(plan, Path(folder))
    own = {finding.rule for finding in (*dsgen.check_job(spec)[1], *plan.findings)}
    assert not [finding for finding in told if finding.rule not in own]
