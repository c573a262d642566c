"""The choices of `training` that memory depends on: taken, refused where the launch files can't say
them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import dsgen
from dsgen.estimate.layout import Layout
from dsgen.estimate.memory import memory
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Lora
from dsgen.programs.deepspeed.write import precision_block
from dsgen.programs.frameworks import program_for
from tests.jobs import job
from tests.programs.plans import make_plan


@pytest.mark.parametrize(
    ("framework", "choice", "value", "others"),
    [
        ("megatron-lm", "kernels", "eager", "deepspeed or huggingface"),
        ("megatron-deepspeed", "kernels", "eager", "deepspeed or huggingface"),
        ("megatron-deepspeed", "cross_entropy", "fused", "megatron-bridge or megatron-lm"),
    ],
)
def test_choices_that_a_framework_lacks_are_refused(
    framework: str, choice: str, value: str, others: str
) -> None:
    """What would be estimated but couldn't be launched is an error at its key, which names the
    frameworks that have it.
    """
    with pytest.raises(dsgen.InvalidJob) as refused:
        job(framework=framework, **{f"training__{choice}": value})
    (finding,) = refused.value.findings
    assert finding.where.pointer == f"/training/{choice}"
    assert finding.hint is not None and finding.hint.endswith(f"use framework: {others}")


_LLAMA = {"framework": "huggingface", "model": "llama-3.1-8b"}


def test_lora_has_defaults() -> None:
    """An empty `lora` is rank 16, alpha twice the rank, all linear layers, and a base that isn't
    quantized.
    """
    chosen = ({}, {"rank": 8, "modules": ["q_proj"]})
    by_default, given = (job(**{**_LLAMA, "training__lora": keys}).training.lora for keys in chosen)
    assert by_default == Lora(rank=16, alpha=32, modules=("all-linear",), base="unquantized")
    assert given == Lora(rank=8, alpha=16, modules=("q_proj",), base="unquantized")


@pytest.mark.parametrize(
    ("key", "value"),
    [("rank", 0), ("modules", "linear"), ("modules", ["q"]), ("modules", []), ("base", "8bit")],
)
def test_wrong_values_of_lora_are_refused(key: str, value: object) -> None:
    """A value that `lora` doesn't take is an error at its key, or at the item of the list."""
    with pytest.raises(dsgen.InvalidJob) as refused:
        job(framework="huggingface", training__lora={key: value})
    (finding,) = refused.value.findings
    assert (finding.where.pointer or "").startswith(f"/training/lora/{key}")
    assert finding.hint or "; expected " in finding.message


def test_fp16_sums_in_fp16() -> None:
    """fp16 training sums gradients in fp16, whatever the framework."""
    with pytest.raises(dsgen.InvalidJob):
        job(framework="deepspeed", training__precision="fp16", training__gradient_dtype="fp32")


def test_gradient_type_is_estimated_and_rendered() -> None:
    """16-bit sums halve what ZeRO-1's replicated gradients take, and the JSON then asks for no
    other type.
    """
    wide, narrow = (
        job(framework="deepspeed", training__gradient_dtype=kind) for kind in ("fp32", "same")
    )
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    assert float(memory(narrow, layout).gradients_bytes) * 3 == float(
        memory(wide, layout).gradients_bytes
    )
    assert "data_types" in precision_block(wide, layout)
    assert "data_types" not in precision_block(narrow, layout)


def test_state_types_are_rendered() -> None:
    """Megatron-LM is told every type that isn't fp32, and of no precision-aware optimizer where all
    are.
    """
    types = {"gradient_dtype": "same", "moment_dtype": "fp8", "master_dtype": "fp16"}
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    whole = job(
        framework="megatron-lm", **{f"training__{key}": value for key, value in types.items()}
    )
    text = " ".join(program_for(make_plan(whole, layout)).arguments)
    for option in (
        "--grad-reduce-in-bf16",
        "--use-precision-aware-optimizer",
        "--main-grads-dtype bf16",
        "--main-params-dtype fp16",
        "--exp-avg-dtype fp8",
        "--exp-avg-sq-dtype fp8",
    ):
        assert option in text
    plain = " ".join(program_for(make_plan(job(framework="megatron-lm"), layout)).arguments)
    assert "precision-aware" not in plain and "dtype" not in plain.replace("--moe-router-dtype", "")


def test_fp8_parameters_are_rendered() -> None:
    """Weights in fp8 are gathered in fp8."""
    whole = job(
        framework="megatron-lm",
        cluster="nvidia/dgx-h100",
        training__precision="fp8",
        training__fp8_parameters=True,
    )
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    assert "--fp8-param-gather" in program_for(make_plan(whole, layout)).arguments


def test_nvfp4_is_rendered() -> None:
    """Products in NVFP4 are written as Megatron-LM's format of 4 bits, on top of bf16."""
    whole = job(framework="megatron-lm", cluster="nvidia/gb300-nvl72", training__precision="nvfp4")
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    text = " ".join(program_for(make_plan(whole, layout)).arguments)
    assert "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4" in text and "fp8" not in text


def test_4_bit_weights_are_rendered() -> None:
    """Weights in NVFP4 alone have their option, and a recipe of fp8 where the optimizer is the
    precision-aware one, which leaves their fp32 copies to Megatron then.
    """
    choices: dict[str, Any] = {
        "framework": "megatron-lm",
        "cluster": "nvidia/gb300-nvl72",
        "training__precision": "nvfp4",
        "training__fp8_parameters": True,
    }
    plain, aware = job(**choices), job(**choices, training__moment_dtype="bf16")
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    texts = [" ".join(program_for(make_plan(each, layout)).arguments) for each in (plain, aware)]
    assert all("--fp4-param-gather" in text for text in texts)
    assert ["--fp8-recipe tensorwise" in text for text in texts] == [False, True]


@pytest.mark.parametrize(
    ("recipe", "stage", "written"), [("mxfp8", 1, True), ("mxfp8", 3, False), ("delayed", 1, False)]
)
def test_mxfp8_weights_are_gathered_into_the_gradients_buffer(
    recipe: str, stage: int, written: bool
) -> None:
    """The distributed optimizer takes MXFP8's weights with the option alone that shares the buffer
    of the gradients, which FSDP switches off.
    """
    whole = job(
        framework="megatron-lm",
        cluster="nvidia/dgx-b200",
        training__precision="fp8",
        training__fp8_recipe=recipe,
        training__fp8_parameters=True,
    )
    layout = Layout(data=16, zero_stage=stage, gradient_accumulation=3)
    arguments = program_for(make_plan(whole, layout)).arguments
    assert ("--reuse-grad-buf-for-mxfp8-param-ag" in arguments) is written


def test_eight_bit_adam_is_the_trainers() -> None:
    """The Trainer makes 8-bit Adam itself: the JSON has no optimizer, and lets ZeRO wrap one that
    it doesn't know.
    """
    whole = job(
        framework="huggingface", training__optimizer="adamw-8bit", training__lora={"rank": 16}
    )
    layout = Layout(data=16, zero_stage=2, gradient_accumulation=3)
    program = program_for(make_plan(whole, layout))
    assert "adamw_bnb_8bit" in program.arguments
    (config,) = (json.loads(file.text) for file in program.files)
    assert "optimizer" not in config and config["zero_allow_untested_optimizer"] is True
    assert any("LoraConfig(r=16, lora_alpha=32" in note for note in program.notes)


def test_fused_kernels_keep_less() -> None:
    """Liger's kernels keep less of every layer than eager ones, and never all logits."""
    eager, fused = (
        job(framework="huggingface", training__kernels=kind) for kind in ("eager", "fused")
    )
    layout = Layout(data=16, zero_stage=1, micro_batch=3)
    assert float(memory(fused, layout).activations_bytes) < float(
        memory(eager, layout).activations_bytes
    )
    assert float(memory(fused, layout).output_bytes) < float(memory(eager, layout).output_bytes)


def test_unfused_loss_is_estimated_and_rendered() -> None:
    """Megatron's loss without fusion takes longer than the fused one, holds fewer bytes a logit,
    and goes without the flag.
    """
    fused, unfused = (
        job(framework="megatron-lm", training__cross_entropy=kind) for kind in ("fused", "unfused")
    )
    layout = Layout(data=16, zero_stage=1, gradient_accumulation=3)
    assert float(memory(unfused, layout).output_bytes) < float(memory(fused, layout).output_bytes)
    assert float(step_time(unfused, layout).compute_s) > float(step_time(fused, layout).compute_s)
    programs = (program_for(make_plan(kind, layout)) for kind in (fused, unfused))
    assert ["--cross-entropy-loss-fusion" in program.arguments for program in programs] == [
        True,
        False,
    ]
