"""Types of gradients, weights and optimizer states, offloaded fractions, copies and adapters in the
memory ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsgen.estimate import model_size
from dsgen.estimate.activations import input_bytes, layer_bytes_per_token
from dsgen.estimate.layout import Layout, Offload
from dsgen.estimate.memory import memory
from dsgen.estimate.rates import rates
from dsgen.job.records import Job
from tests.jobs import job

SHARDED = Layout(data=8, context=2, zero_stage=1, gradient_accumulation=2)


def states(whole: Job, layout: Layout = SHARDED) -> float:
    """Bytes of all states."""
    ledger = memory(whole, layout)
    return float(ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes)


def per_parameter(**training: Any) -> float:
    """Bytes of states per parameter, over 16 ranks, of Megatron-LM with these keys of
    `training`.
    """
    whole = job(gpus=16, **{f"training__{key}": value for key, value in training.items()})
    shared = float(memory(whole, replace(SHARDED, zero_stage=0)).gradients_bytes)
    return states(whole) / (shared / (2 if training.get("gradient_dtype") == "same" else 4))


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, 2 + 4 + 12 / 16),
        ({"gradient_dtype": "same"}, 2 + 2 + 12 / 16),
        ({"moment_dtype": "bf16"}, 2 + 4 + (2 + 4) / 16),
        ({"moment_dtype": "fp8", "master_dtype": "fp16"}, 2 + 4 + (2 + 2) / 16),
        ({"moment_dtype": "fp8", "gradient_dtype": "same"}, 2 + 2 + (2 + 2) / 16),
    ],
)
def test_state_types(training: dict[str, Any], expected: float) -> None:
    """Each type counts its own bytes; beside bf16 weights, a precision-aware master copy has the 16
    bits they lack.
    """
    assert per_parameter(**training) == pytest.approx(expected, rel=1e-6)


def test_fp8_parameters() -> None:
    """Weights in fp8 and their transposes take two bytes, where bf16 weights with both caches take
    four.
    """
    fp8 = {"training__precision": "fp8", "cluster": "nvidia/dgx-h100"}
    kept, gathered = (
        job(gpus=16, **fp8, training__fp8_parameters=choice) for choice in (False, True)
    )
    assert float(memory(kept, SHARDED).parameters_bytes) == 2 * float(
        memory(gathered, SHARDED).parameters_bytes
    )


def test_fp8_scales_take_memory() -> None:
    """MXFP8 keeps a byte of scale for 32 elements of weights and inputs, blocks of 128 four bytes
    for inputs.

    On Blackwell a weight with a single scale is read both ways from one copy; blocks have two.
    """
    fp8 = {
        "training__precision": "fp8",
        "cluster": "nvidia/dgx-b200",
        "training__fp8_parameters": True,
    }
    recipes = ("delayed", "tensorwise", "blockwise", "mxfp8")
    jobs = [job(gpus=16, **fp8, training__fp8_recipe=recipe) for recipe in recipes]
    delayed, *others = (float(memory(each, SHARDED).parameters_bytes) for each in jobs)
    assert [each / delayed for each in others] == pytest.approx([1, 2, 2 * 33 / 32])
    assert [input_bytes(each) for each in jobs] == [1, 1, 33 / 32, 33 / 32]


def test_nvfp4_takes_half_a_byte_and_a_scale_for_16_elements() -> None:
    """Beside bf16 weights, or without them, NVFP4 keeps both copies of 4 bits that products take,
    each with a byte of scale for 16 elements; inputs are kept in one.
    """
    bf16, nvfp4 = (
        job(gpus=16, cluster="nvidia/dgx-b200", training__precision=name)
        for name in ("bf16", "nvfp4")
    )
    alone = job(
        gpus=16,
        cluster="nvidia/dgx-b200",
        training__precision="nvfp4",
        training__fp8_parameters=True,
    )
    wide, both, narrow = (
        float(memory(each, SHARDED).parameters_bytes) for each in (bf16, nvfp4, alone)
    )
    assert both / wide == pytest.approx((2 + 2 * 9 / 16) / 2)
    assert narrow / wide == pytest.approx(9 / 16)
    assert input_bytes(nvfp4) == 9 / 16


def test_fp8_inputs_take_a_byte() -> None:
    """An fp8 layer keeps the inputs of its four linear layers in a byte each, and attention's
    result once more.
    """
    bf16, fp8 = (
        job(cluster="nvidia/dgx-h100", training__precision=name) for name in ("bf16", "fp8")
    )
    wide, narrow = (
        float(layer_bytes_per_token(whole, SHARDED, whole.model.stack.kinds[0]))
        for whole in (bf16, fp8)
    )
    model = bf16.model
    assert wide - narrow == 2 * model.hidden + model.ffn - model.heads * model.head_dim


def test_offloaded_fraction() -> None:
    """Half of an offloaded optimizer stays on the device, and half of the host's bytes are
    needed.
    """
    whole = job(gpus=16)
    none, half, full = (
        memory(whole, replace(SHARDED, offload=offload, offload_fraction=fraction))
        for offload, fraction in (
            (Offload.NONE, 1.0),
            (Offload.OPTIMIZER, 0.5),
            (Offload.OPTIMIZER, 1.0),
        )
    )
    assert float(half.optimizer_bytes) == float(none.optimizer_bytes) / 2
    assert float(full.optimizer_bytes) == 0
    assert float(half.host_bytes_per_node) == float(full.host_bytes_per_node) / 2


def test_copies_of_sharded_states() -> None:
    """Two instances of the distributed optimizer shard over half of the ranks: twice the bytes a
    rank.
    """
    one, two = (memory(job(gpus=16), replace(SHARDED, zero_copies=copies)) for copies in (1, 2))
    assert float(two.optimizer_bytes) == 2 * float(one.optimizer_bytes)


def test_second_copy_of_parameters() -> None:
    """hpZ over 8 ranks keeps a further quarter of a byte a parameter (2 / 8), beside the share over
    all.
    """
    whole = job(framework="deepspeed", gpus=16, training__global_batch=64)
    plain = Layout(data=16, zero_stage=3, gradient_accumulation=4)
    one, two = (
        float(memory(whole, replace(plain, zero_hpz=ranks)).parameters_bytes) for ranks in (1, 8)
    )
    assert (two - one) / model_size.parameter_count(whole.model) == pytest.approx(0.25, rel=1e-3)


def test_second_copy_of_offloaded_parameters() -> None:
    """With offloaded parameters, hpZ's second copy lies on the host: the whole model in 16 bits on
    each node.
    """
    whole = job(framework="deepspeed", gpus=16, training__global_batch=64)
    plain = Layout(
        data=16, zero_stage=3, gradient_accumulation=4, offload=Offload.OPTIMIZER_AND_PARAMETERS
    )
    one, two = (memory(whole, replace(plain, zero_hpz=ranks)) for ranks in (1, 8))
    assert float(two.parameters_bytes) == float(one.parameters_bytes) == 0
    more = (
        float(two.host_bytes_per_node - one.host_bytes_per_node) / rates(whole).pinned_memory_factor
    )
    assert more == pytest.approx(2 * model_size.parameter_count(whole.model), rel=1e-3)


def test_eight_bit_moments() -> None:
    """bitsandbytes' AdamW keeps both moments in little more than two bytes."""
    plain = job(framework="huggingface", gpus=8, training__global_batch=64)
    narrow = replace(plain, training=replace(plain.training, optimizer="adamw-8bit"))
    layout = Layout(data=8, gradient_accumulation=8)
    wide, small = (float(memory(whole, layout).optimizer_bytes) for whole in (plain, narrow))
    assert small / wide == pytest.approx((4 + 2.03) / 12, rel=1e-3)
