"""LoRA and the 8-bit Adam: counts of transformers, memory as the allocator counts it, time by parts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from dsgen.catalog import load_catalog
from dsgen.catalog.records import Model
from dsgen.estimate import adapters
from dsgen.estimate.activations import layer_bytes_per_token
from dsgen.estimate.memory import memory
from dsgen.estimate.workspace import workspace_bytes
from dsgen.job.hf_config import model_from_config
from dsgen.job.records import Job
from tests.estimate.adapted import adapter
from tests.estimate.test_memory_tracker import (
    EXACT,
    PART,
    PEAK,
    config,
    cpu_bytes_per_token,
    layout,
    planned,
    tokens,
)
from tests.estimate.tracked import Tracked, track
from tests.jobs import job
from tests.needs import needs_transformers

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MODULES = {"all-linear": ALL, "attention": ALL[:4], "q_proj v_proj": ("q_proj", "v_proj"), "mlp": ALL[4:]}
every_choice = pytest.mark.parametrize("names", MODULES.values(), ids=list(MODULES))
PRESETS = {name: model_from_config(e.config, name=name, source=e.source) for name, e in load_catalog().models.items()}
KNOWN = sorted(name for name, model in PRESETS.items() if adapters.has_known_modules(model))


def lora(base: str = "unquantized", modules: Any = "all-linear", **changes: Any) -> Job:
    """Llama 3.1 8B with adapters of rank 16 on eight GPUs."""
    chosen = {"rank": 16, "modules": modules, "base": base}
    return job(**{"framework": "huggingface", "model": "llama-3.1-8b", "gpus": 8, "training__lora": chosen, **changes})


def full() -> Job:
    """The same training of the whole model."""
    return job(framework="huggingface", model="llama-3.1-8b", gpus=8)


def test_parameters_are_those_of_pefts_documentation() -> None:
    """Rank 16 on all linear layers of Llama 3.1 8B is 41,943,040 parameters, and on queries and values 6,815,744."""
    assert adapters.adapter_parameters(lora()) == 41_943_040
    assert adapters.adapter_parameters(lora(modules=["q_proj", "v_proj"])) == 6_815_744


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("name", KNOWN)
def test_linear_layers_are_those_of_transformers(name: str) -> None:
    """Every preset of a known family has exactly the linear layers that all-linear finds in transformers' model."""
    model = PRESETS[name]
    ours = [
        (p.name, p.inputs, p.outputs)
        for moe, count in ((False, model.layers if not model.is_moe else model.dense_layers), (True, _moe(model)))
        for p in adapters.projections(model, moe=moe) * count
    ]
    assert sorted(ours) == sorted(_linear_layers(dict(load_catalog().models[name].config)))


def _moe(model: Model) -> int:
    return model.layers - model.dense_layers if model.is_moe else 0


def _linear_layers(shape: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Name, inputs and outputs of the linear layers that peft's all-linear adapts."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.for_model(**{**shape, "model_type": shape["model_type"].replace("kimi_k2", "deepseek_v3")})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(known)
    head = model.get_output_embeddings()
    linear = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and m is not head]
    return [(name.rpartition(".")[2], module.in_features, module.out_features) for name, module in linear]


@cache
def adapted(names: tuple[str, ...], layers: int, *, checkpoint: bool = False, dtype: str = "bfloat16") -> Tracked:
    """The allocator's count of a small Llama with adapters of rank 16."""
    shape = config("llama", layers, "sdpa")
    prepare = adapter(16, 32, names)
    return track(shape, dtype=dtype, attention="sdpa", checkpoint=checkpoint, micro_batch=2, prepare=prepare)


def small(names: tuple[str, ...], layers: int, *, precision: str = "bf16") -> Job:
    """The same training as a job for one GPU."""
    whole = planned("llama", layers, "sdpa", precision=precision)
    chosen = lora(modules=list(names)).training.lora
    return replace(whole, training=replace(whole.training, lora=chosen))


@needs_transformers
@pytest.mark.integration
@every_choice
def test_only_adapters_have_states(names: tuple[str, ...]) -> None:
    """Weights, and the gradients and moments of adapters alone, are the allocator's count to a thousandth."""
    count, ledger = adapted(names, 2, dtype="float32"), memory(small(names, 2, precision="fp32"), layout())
    assert float(ledger.parameters_bytes) == pytest.approx(count.parameters, rel=EXACT)
    assert float(ledger.gradients_bytes) == pytest.approx(count.gradients, rel=EXACT)
    assert float(ledger.optimizer_bytes) == pytest.approx(count.optimizer, rel=EXACT)


@needs_transformers
@pytest.mark.integration
@every_choice
def test_activations_of_a_layer(names: tuple[str, ...]) -> None:
    """What a layer with adapters keeps is within 3 % of the allocator's count."""
    two, four = (adapted(names, layers).kept for layers in (2, 4))
    whole = small(names, 2)
    ours = float(layer_bytes_per_token(whole, layout(), moe=False)) + cpu_bytes_per_token(whole, "sdpa")
    assert ours == pytest.approx((four - two) / 2 / tokens("llama"), rel=PART)


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpointed"])
@every_choice
def test_peak(names: tuple[str, ...], checkpoint: bool) -> None:
    """All that lives beside the states at the peak is within 5 % of the allocator's count."""
    count, whole = adapted(names, 4, checkpoint=checkpoint), small(names, 4)
    ledger = memory(whole, layout(checkpoint=checkpoint))
    backward = float(workspace_bytes(whole, layout(checkpoint=checkpoint)))
    ours = float(ledger.activations_bytes) - backward + max(backward, float(ledger.output_bytes))
    cpu = (1 if checkpoint else 4) * cpu_bytes_per_token(whole, "sdpa") * tokens("llama")
    assert ours + cpu == pytest.approx(count.moment, rel=PEAK)
