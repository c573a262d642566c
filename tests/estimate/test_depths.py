"""Depths of multi-token prediction: parameters, operations, the last stage's load."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dsgen
from dsgen.estimate.activations import local_tokens
from dsgen.estimate.backward import output_bytes
from dsgen.estimate.compute import head_time_s
from dsgen.estimate.flops import model_flops_per_step
from dsgen.estimate.layout import Layout
from dsgen.estimate.stages import chunk_sizes, stage_contents
from dsgen.job.hf_config import model_from_config
from tests.jobs import job

#: Nemotron 3 Super's layers, of which a depth has one of attention and one with experts.
SUPER: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "num_hidden_layers": 3,
    "hybrid_override_pattern": "M*E",
    "mtp_hybrid_override_pattern": "*E",
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376,
    "moe_latent_size": 1024,
    "n_shared_experts": 1,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "vocab_size": 131072,
}


def test_deepseek_v3_has_the_published_parameters_of_its_depth() -> None:
    """DeepSeek-V3's module has 11.5 billion parameters beside table and head, as its
    README_WEIGHTS.md says.
    """
    model = dsgen.load_job(
        {
            "model": "deepseek-v3",
            "cluster": "nvidia/dgx-h100",
            "gpus": 8,
            "framework": "megatron-lm",
            "training": {"global_batch": 64},
        }
    ).model
    assert model.depth_parameters == pytest.approx(11.5e9, rel=0.011)


def test_a_depth_of_nemotron_costs_what_megatron_prints() -> None:
    """A depth of Nemotron 3 Super has attention and experts, and takes the 4.88 GFLOP a token by
    which Megatron-LM's printed figure is above the model's.
    """
    model = model_from_config(SUPER, name="x", source="y")
    assert [layer.letters for layer in model.depth_layers] == ["*", "E"]
    core = sum(layer.mixer.core_flops(8192) for layer in model.depth_layers)
    assert 6 * model.depth_matrix_parameters + 3 * core == pytest.approx(4.88e9, rel=0.01)


@pytest.mark.parametrize("pattern", ["*Q", ["attention", "ssm"], 7, "G"])
def test_a_pattern_of_other_letters_leaves_the_last_layer(pattern: object) -> None:
    """What no layer of the model is can't be a depth's: the last layer is taken."""
    config = {**SUPER, "mtp_hybrid_override_pattern": pattern}
    assert model_from_config(config, name="x", source="y").depth_places == (2,)


def test_depths_load_the_last_stage_alone() -> None:
    """Two depths are two layers, two heads and the fp32 softmax of two losses more on the last
    stage, and none elsewhere.
    """
    plain, deep = job(), job(training__mtp_depths=2)
    layout = Layout(data=4, pipeline=4, zero_stage=1)
    for stage in range(4):
        counts = [float(stage_contents(each, layout, stage).layers) for each in (plain, deep)]
        assert counts[1] - counts[0] == (2 if stage == 3 else 0)

    assert float(head_time_s(deep, layout)) > 3 * float(head_time_s(plain, layout))
    rows = deep.model.vocab
    more = float(output_bytes(deep, layout, rows) - output_bytes(plain, layout, rows))
    assert more == pytest.approx(2 * 4 * local_tokens(deep, layout) * rows, rel=0.05)


def test_operations_grow_by_those_of_each_depth() -> None:
    """A step's FLOPs grow by six for each parameter of a depth's products, head included, and by
    its attention.
    """
    plain, deep = job(), job(training__mtp_depths=3)
    model, sequence = plain.model, plain.training.sequence_length
    core = model.depth_layers[0].mixer.core_flops(sequence)
    each = 6 * model.depth_matrix_parameters + 3 * core
    more = model_flops_per_step(deep) - model_flops_per_step(plain)
    assert more == pytest.approx(3 * each * plain.training.tokens_per_step)


def test_listed_chunks_leave_room_for_depths() -> None:
    """Where chunks are listed, the last one is smaller by the depths, and m stands for each."""
    sizes: dict[str, Any] = {"model__num_hidden_layers": 61}
    layout = Layout(data=4, pipeline=4, virtual_pipeline=4, zero_stage=1)
    plain, deep = job(**sizes), job(**sizes, training__mtp_depths=1)
    assert chunk_sizes(deep, layout)[-1] < chunk_sizes(plain, layout)[-1]
    assert sum(chunk_sizes(deep, layout)) == 61


def test_layers_that_remain_join_the_last_chunk() -> None:
    """61 layers in 16 chunks are 15 of four and one more, as NVIDIA deals those of DeepSeek-V3."""
    layout = Layout(data=4, pipeline=8, virtual_pipeline=2, zero_stage=1)
    assert list(chunk_sizes(job(model__num_hidden_layers=61), layout)) == [4] * 15 + [1]


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface", "megatron-deepspeed"])
def test_other_frameworks_refuse_depths(framework: str) -> None:
    """Depths are trained with Megatron-LM alone."""
    with pytest.raises(dsgen.InvalidJob, match="mtp_depths: 1` is not available"):
        job(framework=framework, training__mtp_depths=1)


def test_the_argument_is_read_back() -> None:
    """A plan with depths writes --mtp-num-layers, and its plan.json says the depths."""
    plan = dsgen.search(job(training__mtp_depths=1)).plans[0]
    files = {file.path: file.text for file in dsgen.render(plan)}
    assert "--mtp-num-layers 1" in files["arguments.txt"]
    assert json.loads(files["plan.json"])["job"]["training"]["mtp_depths"] == 1
