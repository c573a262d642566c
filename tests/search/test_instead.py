"""What pinned keys, the framework and its way to shard cost, against plans without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

import dsgen
from dsgen.cli.answers import nearby
from dsgen.job.records import Job, Pins
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.search.instead import (
    framework_text,
    other_framework,
    other_sharding,
    sharding_text,
    unpinned,
    unpinned_text,
)
from dsgen.search.plan import Plan
from dsgen.search.suggestions import faster_nearby
from tests.cli.running import run

#: Tensor parallelism of eight for a model that needs none.
SLOW: Final = {"tensor": 8}

#: A job whose states are sharded in one of two ways.
TRAINER: Final = {"framework": "huggingface", "model": "qwen2.5-7b"}
BATCH: Final = {"global_batch": 64, "sequence_length": 2048}


def best(job: Job) -> Plan:
    """The chosen plan."""
    return dsgen.search(job, top=1).plans[0]


def small(**keys: Any) -> Job:
    """Eight H100 for a model of 7 B parameters, with Megatron-LM or what `keys` say."""
    spec = {
        "framework": "megatron-lm",
        "model": "llama-2-7b",
        "cluster": "nvidia/dgx-h100",
        "gpus": 8,
        "training": {"sequence_length": 4096, "global_batch": 64, "precision": "bf16"},
    }
    return dsgen.load_job({**spec, **keys})


def test_the_price_of_pins_is_the_chosen_plan_without_them() -> None:
    """A pinned layout is compared with the plan of the same job without pins, in both times."""
    plan = best(small(layout=SLOW))
    free = unpinned(plan)
    assert free is not None
    chosen = best(replace(plan.job, pins=Pins()))
    assert free.layout == chosen.layout
    assert float(free.step_time.total_s) == float(chosen.step_time.total_s)

    shorter = float(free.step_time.total_s) / float(plan.step_time.total_s) - 1
    assert shorter < -0.04
    text = unpinned_text(plan, free)
    assert text.startswith("your layout: ")
    assert f"({shorter:+.0%})" in text


def test_pins_that_make_another_batch_are_compared_by_tokens() -> None:
    """Steps of another batch than the job's aren't compared, but tokens a second."""
    plan = dsgen.estimate(small(layout=SLOW | {"gradient_accumulation": 1, "micro_batch": 1}))
    free = unpinned(plan)
    assert free is not None
    assert plan.layout.global_batch != free.layout.global_batch
    text = unpinned_text(plan, free)
    assert text.count(" tokens/s") == 2
    more = float(free.throughput.tokens_per_s) / float(plan.throughput.tokens_per_s) - 1
    assert more > 0 and text.endswith(f"({more:+.0%})")


def test_pins_that_cost_nothing_have_no_price() -> None:
    """Neither a job without pins nor one that pins what is chosen has a price."""
    plan = best(small())
    assert unpinned(plan) is None
    same = small(layout={"tensor": plan.layout.tensor, "pipeline": plan.layout.pipeline})
    assert unpinned(best(same)) is None


def test_another_framework_is_named_with_its_own_estimate() -> None:
    """A framework that is over a tenth faster is named with its plan's time and what it takes."""
    model, sizes = "llama-3-70b", {"sequence_length": 4096, "global_batch": 256}
    plan = best(small(framework="deepspeed", model=model, gpus=64, training=sizes))
    other = other_framework(plan, FRAMEWORKS.values())
    assert other is not None
    assert other.job.framework.name == "megatron-lm"
    job = small(framework="megatron-lm", model=model, gpus=64, training=sizes)
    least_s = float(best(job).step_time.total_s)
    assert least_s <= float(other.step_time.total_s) == pytest.approx(least_s, rel=0.01)
    assert float(other.step_time.total_s) < 0.9 * float(plan.step_time.total_s)

    text = framework_text(plan, other)
    assert text.startswith("framework: megatron-lm ")
    assert "takes its pretrain_gpt.py and model code, tokenized data (.bin, .idx)" in text
    assert other_framework(other, FRAMEWORKS.values()) is None


def test_a_framework_that_lacks_what_the_job_trains_is_not_named() -> None:
    """Adapters stay where they are: another framework lacks them, or a folder of weights."""
    job = small(
        framework="huggingface",
        training={"sequence_length": 4096, "global_batch": 64, "lora": {"rank": 16}},
    )
    assert other_framework(best(job), FRAMEWORKS.values()) is None


def test_a_framework_that_lacks_a_part_of_the_model_is_not_named() -> None:
    """A framework without options for a part, which would train another model, is no advice: of two
    models of the same sizes, the one with norms behind attention (OLMo 2) is told of none.
    """
    sizes = {
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        "vocab_size": 128256,
    }

    def other(family: str) -> Plan | None:
        model = {"model_type": family, **sizes}
        training = {"sequence_length": 4096, "global_batch": 256}
        plan = best(small(framework="deepspeed", model=model, gpus=64, training=training))
        return other_framework(plan, FRAMEWORKS.values())

    assert other("llama") is not None
    assert other("olmo2") is None


def test_an_incomplete_framework_is_named_where_it_halves_the_time() -> None:
    """What would train the model without a part is named with the code that it takes, where no
    complete framework is much faster.
    """
    spec = small(
        framework="huggingface",
        model="minimax-m2",
        cluster="nvidia/gb200-nvl72",
        gpus=256,
        training={"sequence_length": 4096, "global_batch": 1024},
    )
    plan = best(spec)
    other = other_framework(plan, FRAMEWORKS.values())
    assert other is not None
    assert float(other.step_time.total_s) < 0.5 * float(plan.step_time.total_s)
    text = framework_text(plan, other)
    assert "code for normalisation of queries and keys over all heads at once, which it" in text


def test_the_other_sharding_is_the_plan_that_the_spec_has_with_it() -> None:
    """What the line says is the plan that the spec has with the other sharding, both ways."""
    framework = FRAMEWORKS["huggingface"]
    ways = {"fsdp2": framework.shardings["fsdp2"], "deepspeed": framework}
    plans = {name: best(small(**TRAINER, training={**BATCH, "sharding": name})) for name in ways}
    for name, other in (("fsdp2", "deepspeed"), ("deepspeed", "fsdp2")):
        found = other_sharding(plans[name], ways[other])
        assert found is not None
        assert found.layout == plans[other].layout
        assert found.step_time == plans[other].step_time
        said = {"fsdp2": "FSDP2 (", "deepspeed": "ZeRO "}[other]
        text = sharding_text(plans[name], found)
        assert text.startswith(f"training.sharding: {other}: {said}")


def test_the_other_sharding_keeps_pins_as_the_spec_does() -> None:
    """Pins that the other sharding allows hold in what the line says, also those of the stage."""
    framework = FRAMEWORKS["huggingface"]
    ways = {"fsdp2": framework.shardings["fsdp2"], "deepspeed": framework}
    pins = {"zero_stage": 3, "sync_each_batch": False, "micro_batch": 1}
    plans = {
        name: best(small(**TRAINER, training={**BATCH, "sharding": name}, layout=pins))
        for name in ways
    }
    for name, other in (("fsdp2", "deepspeed"), ("deepspeed", "fsdp2")):
        found = other_sharding(plans[name], ways[other])
        assert found is not None
        assert found.layout == plans[other].layout and found.layout.zero_stage == 3
        assert found.memory.required_bytes == plans[other].memory.required_bytes
        assert "without" not in sharding_text(plans[name], found)


@pytest.mark.parametrize(
    ("name", "other", "pin"),
    [("fsdp2", "deepspeed", "zero_copies"), ("deepspeed", "fsdp2", "zero_hpz")],
)
def test_a_pin_that_the_other_sharding_refuses_is_named(name: str, other: str, pin: str) -> None:
    """Of the pins, the line leaves out the one that is refused with the other, and names it."""
    framework = FRAMEWORKS["huggingface"]
    ways = {"fsdp2": framework.shardings["fsdp2"], "deepspeed": framework}
    pins = {"zero_stage": 3, pin: 2}
    plan = best(small(**TRAINER, training={**BATCH, "sharding": name}, layout=pins))
    found = other_sharding(plan, ways[other])
    assert found is not None and found.layout.zero_stage == 3
    text = sharding_text(plan, found)
    assert text.startswith(f"training.sharding: {other} (without layout.{pin}): ")


def test_a_sharding_that_a_rule_refuses_is_not_named() -> None:
    """Tensor parallelism and LAMB have no plan with FSDP2, and `plan` says no line of it."""
    training = {**BATCH, "sharding": "deepspeed"}
    plan = best(small(**TRAINER, training=training, layout={"tensor": 2}))
    assert other_sharding(plan, FRAMEWORKS["huggingface"].shardings["fsdp2"]) is None


def test_plan_says_the_other_sharding_in_a_line() -> None:
    """`dsgen plan` of a Trainer's job says what the other sharding takes, of other jobs nothing."""
    flags = ("--model", "qwen2.5-7b", "--cluster", "dgx-h100", "--global-batch", "64")
    told = run("plan", *flags, "--nodes", "1", "--framework", "huggingface").output
    assert "Or      training.sharding: fsdp2: FSDP2 (" in told
    assert "training.sharding" not in run("plan", *flags, "--nodes", "1").output


def test_a_key_that_makes_a_pin_needless_is_told_with_what_to_set() -> None:
    """A key that saves the memory for which the job pins recomputation is told, with the pin to
    change: set both, and the plan is the one that was told. Of a pin that costs by itself, no
    other key's gain is told.
    """
    pins = {"zero_stage": 3, "sync_each_batch": False, "micro_batch": 1, "recompute": "full"}
    training = {"sequence_length": 8192, "global_batch": 128, "sharding": "fsdp2"}
    adopted = {**TRAINER, "model": "qwen3-8b", "gpus": 16}
    plan = best(small(**adopted, training=training, layout=pins))
    (offer,) = [each for each in faster_nearby(plan) if each.path == "training.kernels"]
    ((_, text),) = nearby(plan, [offer])
    assert "(with layout.recompute: none" in text

    fused = small(
        **adopted,
        training={**training, "kernels": "fused"},
        layout={**pins, "recompute": "none"},
    )
    assert best(fused).step_time == offer.plan.step_time

    roomy = {**training, "sequence_length": 1024}
    plan = best(small(**adopted, training=roomy, layout=pins))
    paths = {each.path for each in faster_nearby(plan)}
    assert "layout.recompute" in paths and "training.moment_dtype" not in paths
