"""What partial recomputation keeps, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsgen.estimate.activations import (
    kept_per_token,
    layer_bytes_per_token,
    repeated_bytes_per_token,
)
from dsgen.estimate.flops import hardware_flops_per_step, model_flops_per_step
from dsgen.estimate.layout import Layout, Modules, Recompute
from dsgen.estimate.stages import stage_contents
from dsgen.estimate.step_time import step_time
from dsgen.rules.layout.recompute import module_choices, own_modules
from dsgen.rules.run import LAYOUT_RULES
from tests.estimate.test_memory import job

DEEPSEEK = job(model="deepseek-v3", framework="megatron-lm")
LLAMA = job(model="llama-3.1-70b", framework="megatron-lm")
(LAYER,) = LLAMA.model.stack.kinds
ROUTING = 256 * 13 // 2  #: of 256 experts three fp32 scores and a mask, in 16-bit elements


def selective(modules: Modules, **fields: int) -> Layout:
    """A layout that recomputes modules."""
    return Layout(data=1, recompute=Recompute.SELECTIVE, recompute_modules=modules, **fields)


@pytest.mark.parametrize(
    ("modules", "dense", "moe"),
    [
        # In 16-bit elements a token, from the models' own sizes: hidden 7168, 128 heads of 192, 192
        # and 128; 8 of 256 experts and one shared, all 2048 wide; dense MLP 18432 wide.
        (Modules.MOE_ACT, 0, 8 * 2048),
        (Modules.SHARED_EXPERTS, 0, 3 * 2048),
        (Modules.LAYERNORM, 7168, 2 * 7168),
        (Modules.MLA_UP_PROJ, 128 * 512, 128 * 512),
        (Modules.MLP, 7168 + 3 * 18432, 0),
        (Modules.MOE, 0, 8 * (7168 + 3 * 2048) + 3 * 2048 + ROUTING),
        (
            Modules.MOE | Modules.MOE_ACT | Modules.SHARED_EXPERTS,
            0,
            8 * (7168 + 3 * 2048) + 3 * 2048 + ROUTING,
        ),
    ],
)
def test_modules_free_what_megatron_discards(modules: Modules, dense: int, moe: int) -> None:
    """Of each module go the tensors that only its own backward pass needs; within moe, its parts
    are counted once.
    """
    for kind, elements in zip(DEEPSEEK.model.stack.kinds, (dense, moe), strict=True):
        assert (
            sum(map(float, repeated_bytes_per_token(DEEPSEEK, selective(modules), kind)))
            == 2 * elements
        )


def test_fused_normalisations_are_no_modules() -> None:
    """With Transformer Engine, a dense layer without latent attention has no layernorm to repeat by
    itself.
    """
    assert own_modules(LLAMA) == Modules.CORE_ATTN | Modules.MLP
    assert (
        sum(map(float, repeated_bytes_per_token(LLAMA, selective(Modules.LAYERNORM), LAYER))) == 0
    )


def test_a_block_keeps_the_other_layers_whole() -> None:
    """Of 20 layers in two chunks, three of each are repeated: six inputs and 14 whole layers
    stay.
    """
    layout = Layout(
        data=1, pipeline=4, virtual_pipeline=2, recompute=Recompute.FULL, recompute_layers=3
    )
    kept = kept_per_token(LLAMA, layout, stage_contents(LLAMA, layout, 1))
    whole = layer_bytes_per_token(LLAMA, layout, LAYER)
    assert float(kept) == pytest.approx(6 * 2 * LLAMA.model.hidden + 14 * float(whole))


def test_a_block_as_long_as_a_chunk_is_full_recomputation() -> None:
    """Ten layers of ten, or a hundred, cost and keep what full recomputation does."""
    full = Layout(
        data=1, pipeline=4, virtual_pipeline=2, gradient_accumulation=8, recompute=Recompute.FULL
    )
    for count in (10, 100):
        layout = replace(full, recompute_layers=count)
        for name in ("recompute_s", "tensor_s", "total_s"):
            assert getattr(step_time(LLAMA, layout), name) == pytest.approx(
                getattr(step_time(LLAMA, full), name)
            )
        held = stage_contents(LLAMA, layout, 0)
        assert kept_per_token(LLAMA, layout, held) == kept_per_token(LLAMA, full, held)


def test_a_group_keeps_one_input() -> None:
    """Five layers that are repeated together keep a fifth of the inputs."""
    full = Layout(data=1, pipeline=4, recompute=Recompute.FULL)
    held = stage_contents(LLAMA, full, 0)
    assert kept_per_token(LLAMA, replace(full, recompute_group=5), held) * 5 == kept_per_token(
        LLAMA, full, held
    )


def test_cost_lies_between_none_and_full() -> None:
    """Every choice between none and full takes less time and arithmetic than full, and more than
    none.
    """
    for whole in (DEEPSEEK, LLAMA):
        none = Layout(
            data=16, pipeline=8, tensor=8, sequence_parallel=True, gradient_accumulation=8
        )
        full = replace(none, recompute=Recompute.FULL)
        layers = [replace(full, recompute_layers=count) for count in (1, 3, 6)]
        partial = replace(none, recompute=Recompute.SELECTIVE)
        modules = [replace(partial, recompute_modules=each) for each in module_choices(whole)]
        for layout in (*layers, *modules):
            assert (
                step_time(whole, none).total_s
                < step_time(whole, layout).total_s
                < step_time(whole, full).total_s
            )
            most = hardware_flops_per_step(whole, full)
            assert model_flops_per_step(whole) <= hardware_flops_per_step(whole, layout) < most


def test_parts_of_experts_are_repeated_once() -> None:
    """Within moe, its activation and shared experts take no time beyond it."""
    none = Layout(data=16, pipeline=8, gradient_accumulation=8, recompute=Recompute.SELECTIVE)
    alone = replace(none, recompute_modules=Modules.MOE)
    together = replace(
        none, recompute_modules=Modules.MOE | Modules.MOE_ACT | Modules.SHARED_EXPERTS
    )
    parts = replace(none, recompute_modules=Modules.MOE_ACT | Modules.SHARED_EXPERTS)
    spent = [float(step_time(DEEPSEEK, layout).recompute_s) for layout in (alone, together, parts)]
    assert spent[0] == spent[1] > spent[2] > 0


def test_choices_are_legal() -> None:
    """The search is offered no modules that a rule refuses, with fp8 neither."""
    for precision in ("bf16", "fp8"):
        whole = job(
            model="deepseek-v3",
            framework="megatron-lm",
            cluster="nvidia/dgx-h100",
            training__precision=precision,
        )
        for modules in module_choices(whole):
            layout = selective(modules)
            for rule in LAYOUT_RULES:
                if rule.columns.binds(whole) and rule.id in (
                    "ACT007",
                    "MLM081",
                    "MLM083",
                    "MLM084",
                ):
                    assert np.all(rule.columns.holds(whole, layout)), rule.id
