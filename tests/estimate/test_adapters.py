"""LoRA and the 8-bit Adam: counts of transformers, memory as the allocator counts it, time by
parts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import pytest

from dsgen.catalog import load_catalog
from dsgen.catalog.model import Model
from dsgen.estimate import adapters
from dsgen.estimate.activations import layer_bytes_per_token
from dsgen.estimate.backward import workspace_bytes
from dsgen.estimate.flops import model_flops_per_step
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.memory import loading_bytes, memory
from dsgen.estimate.model_size import parameter_count
from dsgen.estimate.stages import stage_contents
from dsgen.estimate.states import moment_bytes
from dsgen.estimate.step_time import step_time
from dsgen.job.hf_config import model_from_config
from dsgen.job.records import Adapters, Job, Lora
from dsgen.rules.run import check_fit
from tests.estimate.adapted import adapter
from tests.estimate.test_memory_tracker import (
    EXACT,
    PEAK,
    config,
    cpu_bytes_per_token,
    layout,
    planned,
    tokens,
)
from tests.estimate.tracked import Tracked, build, track
from tests.jobs import job
from tests.needs import needs_transformers

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MODULES = {
    "all-linear": ALL,
    "attention": ALL[:4],
    "q_proj v_proj": ("q_proj", "v_proj"),
    "mlp": ALL[4:],
}
every_choice = pytest.mark.parametrize("names", MODULES.values(), ids=list(MODULES))
PRESETS = {
    name: model_from_config(e.config, name=name, source=e.source)
    for name, e in load_catalog().models.items()
}
PASSED = 256  #: tokens that a real model computes on
KNOWN = sorted(name for name, model in PRESETS.items() if adapters.has_known_modules(model))


def lora(base: str = "unquantized", modules: Any = "all-linear", **changes: Any) -> Job:
    """Llama 3.1 8B with adapters of rank 16 on eight GPUs."""
    chosen = {"rank": 16, "modules": modules, "base": base}
    return job(
        **{
            "framework": "huggingface",
            "model": "llama-3.1-8b",
            "gpus": 8,
            "training__lora": chosen,
            **changes,
        }
    )


def full() -> Job:
    """The same training of the whole model."""
    return job(framework="huggingface", model="llama-3.1-8b", gpus=8)


def test_parameters_are_those_of_pefts_documentation() -> None:
    """Rank 16 on all linear layers of Llama 3.1 8B is 41,943,040 parameters, and on queries and
    values 6,815,744.
    """
    assert adapters.adapter_parameters(lora()) == 41_943_040
    assert adapters.adapter_parameters(lora(modules=["q_proj", "v_proj"])) == 6_815_744


@pytest.mark.parametrize(
    "name",
    ["gemma-4-31b", "solar-open-100b", "hy3-295b-a21b", "mimo-v2-flash", "mellum2-12b-a2.5b"],
)
def test_models_of_2026_with_llamas_names_take_adapters(name: str) -> None:
    """Families whose linear layers have Llama's names are planned, however new they are."""
    assert name in KNOWN


def test_a_router_that_is_a_linear_layer_is_not_planned() -> None:
    """all-linear would put adapters on the routers of Gemma 4's experts."""
    assert "gemma-4-26b-a4b" not in KNOWN


@pytest.mark.parametrize("modules", ["all-linear", ["q_proj", "v_proj"]])
def test_encoders_of_images_get_no_adapters(modules: Any) -> None:
    """The pattern takes the layers of text in either class, and none of a vision encoder."""
    pattern = adapters.text_modules(lora(model="gemma-4-31b", modules=modules))
    assert pattern is not None
    assert re.fullmatch(pattern, "model.language_model.layers.0.self_attn.q_proj")
    assert re.fullmatch(pattern, "model.layers.0.self_attn.v_proj")
    assert not re.fullmatch(pattern, "model.vision_tower.encoder.layers.0.self_attn.q_proj")
    assert not re.fullmatch(pattern, "model.language_model.layers.0.self_attn.q_norm")
    assert adapters.text_modules(lora()) is None


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("name", KNOWN)
def test_linear_layers_are_those_of_transformers(name: str) -> None:
    """Every preset of a known family has exactly the linear layers that all-linear finds in
    transformers' model.
    """
    model = PRESETS[name]
    ours = [
        (p.name, p.inputs, p.outputs)
        for layer, count in zip(model.stack.kinds, model.stack.counts, strict=True)
        for p in layer.projections * count
    ]
    assert sorted(ours) == sorted(_linear_layers(dict(load_catalog().models[name].config)))


def _linear_layers(shape: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Name, inputs and outputs of the linear layers that peft's all-linear adapts."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.for_model(
        **{**shape, "model_type": shape["model_type"].replace("kimi_k2", "deepseek_v3")}
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(known)
    head = model.get_output_embeddings()
    linear = [
        (n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and m is not head
    ]
    return [
        (name.rpartition(".")[2], module.in_features, module.out_features)
        for name, module in linear
    ]


@cache
def adapted(
    names: tuple[str, ...], layers: int, *, checkpoint: bool = False, dtype: str = "bfloat16"
) -> Tracked:
    """The allocator's count of a small Llama with adapters of rank 16."""
    shape = config("llama", layers, "sdpa")
    prepare = adapter(16, 32, names)
    return track(
        shape, dtype=dtype, attention="sdpa", checkpoint=checkpoint, micro_batch=2, prepare=prepare
    )


def small(names: tuple[str, ...], layers: int = 2, *, precision: str = "bf16") -> Job:
    """The same training as a job for one GPU."""
    whole = planned("llama", layers, "sdpa", precision=precision)
    chosen = lora(modules=list(names)).training.lora
    return replace(whole, training=replace(whole.training, lora=chosen))


@needs_transformers
@pytest.mark.integration
def test_only_adapters_have_states() -> None:
    """Weights, and the gradients and moments of adapters alone, are the allocator's count to a
    thousandth.
    """
    count, ledger = adapted(ALL, 2, dtype="float32"), memory(small(ALL, precision="fp32"), layout())
    assert float(ledger.parameters_bytes) == pytest.approx(count.parameters, rel=EXACT)
    assert float(ledger.gradients_bytes) == pytest.approx(count.gradients, rel=EXACT)
    assert float(ledger.optimizer_bytes) == pytest.approx(count.optimizer, rel=EXACT)


@needs_transformers
@pytest.mark.integration
@every_choice
def test_layers_save_what_the_ledger_says(names: tuple[str, ...]) -> None:
    """What autograd saves for a layer with adapters is within 1 % of the ledger's count."""
    ours = float(layer_bytes_per_token(small(names), layout(), small(names).model.stack.kinds[0]))
    assert ours == pytest.approx((_saved(names, 2) - _saved(names, 1)) / PASSED, rel=0.01)


def _saved(names: tuple[str, ...], layers: int) -> int:
    """Bytes of the tensors that autograd saves in a forward pass of a real model, but for its
    parameters.
    """
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    model = build({**config("llama", layers, "sdpa"), "vocab_size": 128}, "sdpa")
    adapter(16, 32, names)(model)
    torch.set_default_dtype(usual)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = torch.randint(0, 128, (2, PASSED // 2))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(input_ids=inputs, labels=inputs)
    return sum(saved.values())


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("names", [ALL, ALL[:4]], ids=["all-linear", "attention"])
def test_peak(names: tuple[str, ...], checkpoint: bool) -> None:
    """All that lives beside the states at the peak is within 5 % of the allocator's count."""
    count, whole = adapted(names, 4, checkpoint=checkpoint), small(names, 4)
    ledger = memory(whole, layout(checkpoint=checkpoint))
    backward = float(workspace_bytes(whole, layout(checkpoint=checkpoint)))
    ours = float(ledger.activations_bytes) - backward + max(backward, float(ledger.output_bytes))
    cpu = (1 if checkpoint else 4) * cpu_bytes_per_token(whole, "sdpa") * tokens("llama")
    assert ours + cpu == pytest.approx(count.moment, rel=PEAK)


def test_quantized_base_takes_half_a_byte_a_weight() -> None:
    """4.127 bits for each weight of a linear layer, as QLoRA says, 16 for tables and norms;
    adapters are 16-bit.
    """
    model, adapted_weights = lora().model, 41_943_040
    linear = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)
    one = Layout(data=8)
    held = float(memory(lora("4bit"), one).parameters_bytes)
    expected = linear * 4.127 / 8 + 2 * (parameter_count(model) - linear + adapted_weights)
    assert held == pytest.approx(expected, rel=1e-4)


def test_zero_3_shards_the_base() -> None:
    """Stage 3 divides frozen weights by the ranks, stages 1 and 2 don't, and no stage has gradients
    for them.
    """
    ledgers = [memory(lora(), Layout(data=8, zero_stage=stage)) for stage in range(4)]
    whole = 2 * (parameter_count(lora().model) + 41_943_040)
    assert [float(ledger.parameters_bytes) for ledger in ledgers] == [
        whole,
        whole,
        whole,
        whole / 8,
    ]
    assert (
        max(float(ledger.gradients_bytes + ledger.optimizer_bytes) for ledger in ledgers)
        < 0.1 * whole
    )


def test_a_quantized_model_is_loaded_whole() -> None:
    """With ZeRO-3 a rank's peak is at least the whole model in 4 bits, for no rank loads a part."""
    ranks = job(**{**_ON_64, "training__lora": {"base": "4bit"}})
    least = memory(ranks, Layout(data=64, zero_stage=3, recompute=Recompute.FULL)).required_bytes
    assert float(least) > 0.5 * parameter_count(ranks.model)


def test_the_peak_of_loading_is_named() -> None:
    """Where loading is the peak, MEM001 says so; where a step needs more, it doesn't."""
    small = {**_ON_64, "cluster": "4xrtx-4090", "gpus": 4, "training__lora": {"base": "4bit"}}
    ranks = job(**small)
    for micro_batch, is_peak in ((1, True), (64, False)):
        layout = Layout(data=4, zero_stage=3, micro_batch=micro_batch, recompute=Recompute.FULL)
        ledger = memory(ranks, layout)
        (finding,) = (f for f in check_fit(ranks, layout, ledger) if f.rule == "MEM001")
        assert ("while it loads the whole 4-bit model" in finding.message) is is_peak
        loaded = loading_bytes(ranks, layout)
        assert loaded == (float(ledger.allocated_bytes) if is_peak else 0)


_ON_64 = {
    "framework": "huggingface",
    "model": "llama-3.1-70b",
    "gpus": 64,
    "training__global_batch": 64,
    "training__sequence_length": 512,
}


def test_eight_bit_moments() -> None:
    """8-bit Adam keeps two bytes a parameter and two fp32 scales for every 256; master weights
    stay.
    """
    eight = job(framework="huggingface", training__optimizer="adamw-8bit")
    assert moment_bytes(eight) == 2 + 8 / 256
    one = Layout(data=16)
    saved = (
        memory(job(framework="huggingface"), one).optimizer_bytes
        - memory(eight, one).optimizer_bytes
    )
    assert float(saved) == pytest.approx((8 - 2 - 8 / 256) * parameter_count(eight.model))


def test_frozen_weights_have_no_gradient_product() -> None:
    """Model FLOPs are 4 a frozen parameter and 6 an adapter's, and a step is between two and three
    thirds of full.
    """
    per_token = model_flops_per_step(lora()) - model_flops_per_step(full()) * 2 / 3
    attention = model_flops_per_step(full()) - 6 * full().training.tokens_per_step * _matrices(
        full().model
    )
    assert per_token == pytest.approx(
        6 * 41_943_040 * full().training.tokens_per_step + attention / 3
    )
    one = Layout(data=8, zero_stage=1, micro_batch=2, gradient_accumulation=3)
    share = float(step_time(lora(), one).compute_s) / float(step_time(full(), one).compute_s)
    assert 2 / 3 < share < 1


def _matrices(model: Model) -> int:
    return (
        parameter_count(model) - model.vocab * model.hidden - (2 * model.layers + 1) * model.hidden
    )


def test_only_adapters_are_reduced() -> None:
    """ZeRO-1 sends a hundredth of full training's bytes, and ZeRO-3 gathers the whole base none the
    less.
    """
    one, three = (Layout(data=8, zero_stage=stage, micro_batch=6) for stage in (1, 3))
    assert float(step_time(lora(), one).data_s) < 0.1 * float(step_time(full(), one).data_s)
    assert float(step_time(lora(), three).data_s) > 0.1 * float(step_time(full(), three).data_s)


def test_four_bits_cost_time() -> None:
    """Weights in 4 bits are read and written once more for each pass, so that steps are longer,
    forward and again.
    """
    plain, four = (
        step_time(lora(base), Layout(data=8, micro_batch=1)) for base in ("unquantized", "4bit")
    )
    assert float(four.compute_s) > float(plain.compute_s)


def test_offload_moves_adapters_only() -> None:
    """An offloaded optimizer of adapters takes a hundredth of the host memory of full
    training's.
    """
    layout_ = Layout(data=8, zero_stage=2, offload=Offload.OPTIMIZER)
    ours, theirs = (float(memory(which, layout_).host_bytes_per_node) for which in (lora(), full()))
    assert 0 < ours < 0.01 * theirs


@pytest.mark.parametrize(
    ("of_experts", "count"), [("none", 0), ("shared", 2_457_600), ("each", 157_286_400)]
)
@pytest.mark.parametrize("tensor", [1, 2])
def test_megatrons_adapters_are_of_fused_layers(
    of_experts: Literal["none", "shared", "each"], count: int, tensor: int
) -> None:
    """Qwen3 30B-A3B with rank 8 over two expert ranks: 48 layers of a fused attention, cut by
    tensor ranks, and of experts that have one adapter together, or one each of 64.
    """
    training = {"mode": "lora", "weights": "/w", "sequence_length": 4096, "global_batch": 64}
    tuned = job(framework="megatron-bridge", model="qwen3-30b-a3b", gpus=8, training=training)
    lora = Lora(rank=8, alpha=16, modules=("all-linear",), base="unquantized")
    tuned = replace(
        tuned,
        training=replace(tuned.training, lora=lora),
        framework=replace(tuned.framework, adapters=Adapters(of_fused=True, of_experts=of_experts)),
    )
    cut = Layout(data=8 // tensor, tensor=tensor, expert=2)
    updated = adapters.trained(tuned, cut, stage_contents(tuned, cut, 0))
    attention = (2048 + (32 + 2 * 4) * 128) + (32 * 128 + 2048)
    assert updated.shared == 8 * 48 * attention / tensor
    assert updated.experts == count
