"""Arguments of both Megatron trees: a strict parser made from the real options takes every one of
them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

import dsgen
from dsgen.catalog.model import Model
from dsgen.catalog.records import load_catalog
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.uncertainty import host_band
from dsgen.job.hf_config import model_from_config
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron.arguments import read_file
from dsgen.programs.megatron.facts import megatron_facts
from dsgen.programs.megatron.options import Flavour, option_table
from dsgen.programs.program import Program
from dsgen.programs.records import PROGRAMS
from dsgen.rules.job.model import missing_parts
from dsgen.search.summary import host_text
from dsgen.submission.submission import Context, Submission
from dsgen.text.text import text_of
from tests.pairs import every_pair
from tests.programs.places import read_by
from tests.programs.plans import (
    DEEPSEEK,
    GPT,
    LLAMA,
    MIXTRAL,
    MODELS,
    deepseek,
    gpt,
    llama,
    make_job,
    make_plan,
    mixtral,
    words,
)

TREES: tuple[Flavour, ...] = ("megatron-deepspeed", "megatron-lm")
#: What dsgen writes for.
VERSIONS = {"megatron-deepspeed": "4efb479d", "megatron-lm": "core_v0.19.0"}
ODD_MODELS = (
    llama(qkv_bias=True, qk_norm="head", sliding_window=4096, attention_sinks=True),
    llama(position_embedding="none", norm="layernorm"),
    gpt(activation="relu2", position_embedding="alibi"),
    mixtral(family="qwen2_moe", shared_experts=1, shared_ffn=5632, shared_gate=True),
)
THREE_D = Layout(
    data=8,
    tensor=8,
    pipeline=16,
    zero_stage=1,
    micro_batch=1,
    gradient_accumulation=192,
    sequence_parallel=True,
)


@lru_cache(maxsize=2)
def parser_of(tree: Flavour) -> argparse.ArgumentParser:
    """A parser with the tree's own option names, types and choices, which refuses everything
    else.
    """
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    kinds: dict[str, Any] = {"int": int, "float": float, "text": str}
    table = option_table(tree)
    version = next(i for i, name in enumerate(table.versions) if name.startswith(VERSIONS[tree]))
    for name in table.rows:
        option = table.get(name)
        assert option is not None
        if option.versions and version not in option.versions:
            continue
        if option.kind == "flag":
            parser.add_argument(name, dest=name, action="store_true")
        else:
            kind = kinds[option.kind]
            parser.add_argument(
                name, dest=name, type=kind, nargs=option.nargs, choices=option.choices or None
            )
    return parser


def parsed(program: Program, tree: Flavour) -> dict[str, Any]:
    """The arguments as the tree's parser reads them, without those left at their default."""
    read = vars(parser_of(tree).parse_args(words(program)))
    return {
        option: value for option, value in read.items() if value is not None and value is not False
    }


def arguments(
    tree: Flavour, model: Model = GPT, layout: Layout = THREE_D, **changes: Any
) -> dict[str, Any]:
    """The parsed arguments of one plan."""
    return parsed(program_for(make_plan(make_job(tree, model, **changes), layout)), tree)


SHAPES = (
    Layout(data=8, sequence_parallel=True),
    Layout(data=8, tensor=2, pipeline=4, virtual_pipeline=2, sequence_parallel=True),
    Layout(data=8, context=4, sequence_parallel=True),
)


def layouts() -> Iterator[Layout]:
    """Every stage, recomputation and offload on three shapes, each with each of the others."""
    for shape, stage, recompute, offload in every_pair(
        SHAPES, range(4), list(Recompute), list(Offload)
    ):
        yield replace(shape, zero_stage=stage, recompute=recompute, offload=offload)


@pytest.mark.parametrize("tree", TREES)
def test_every_option_exists_with_a_legal_value(tree: Flavour) -> None:
    """Whatever the model, layout, precision, optimizer and attention, each option and choice is one
    of the tree's.
    """
    parser = parser_of(tree)
    trainings = [
        ("fp32", "adamw", "flash"),
        ("fp16", "sgd", "unfused"),
        ("bf16", "adamw", "unfused"),
        ("fp8", "adam", "flash"),
    ]
    for precision, optimizer, attention in trainings:
        for model in (*MODELS.values(), *ODD_MODELS):
            job = make_job(
                tree, model, precision=precision, optimizer=optimizer, attention=attention
            )
            for layout in layouts():
                assert parser.parse_args(words(program_for(make_plan(job, layout))))


@pytest.mark.parametrize("tree", TREES)
def test_no_option_is_given_twice(tree: Flavour) -> None:
    """A plan says each thing once."""
    for model in MODELS.values():
        given = [
            w
            for w in words(program_for(make_plan(make_job(tree, model), THREE_D)))
            if w.startswith("--")
        ]
        assert len(given) == len(set(given))


@pytest.mark.parametrize("tree", TREES)
def test_batch_and_sizes_are_the_layouts(tree: Flavour) -> None:
    """The batch, the parallel sizes and the number of steps are those of the plan."""
    read = arguments(tree)
    assert (read["--micro-batch-size"], read["--global-batch-size"]) == (1, 1536)
    assert (read["--tensor-model-parallel-size"], read["--pipeline-model-parallel-size"]) == (8, 16)
    assert read["--train-iters"] == 95368  # 300e9 tokens over 1536 × 2048, rounded up
    assert "--sequence-parallel" in read


@pytest.mark.parametrize("tree", TREES)
def test_the_jobs_own_length_and_warm_up_win(tree: Flavour) -> None:
    """Options that exclude ours, such as --train-samples, replace them; the job's arguments come
    last.
    """
    own = ("--train-samples", "1000", "--lr-warmup-samples=10")
    program = program_for(make_plan(make_job(tree, GPT, arguments=own), THREE_D))
    given = words(program)
    assert tuple(given[-3:]) == own
    assert not {"--train-iters", "--lr-warmup-fraction"} & set(given)


@pytest.mark.parametrize("tree", TREES)
def test_a_job_without_duration_says_so(tree: Flavour) -> None:
    """The script insists on a length, so there is one, and a note that admits it."""
    program = program_for(make_plan(make_job(tree, GPT, duration_tokens=None), THREE_D))
    assert parsed(program, tree)["--train-iters"] == 1000
    assert any("1000 steps" in note for note in program.notes)


def test_one_stage_is_no_pipeline_to_megatron_deepspeed() -> None:
    """Without --no-pipeline-parallel even one stage becomes a PipelineModule, which ZeRO 2 and 3
    refuse.
    """
    assert "--no-pipeline-parallel" in arguments(
        "megatron-deepspeed", layout=Layout(data=8, zero_stage=3)
    )
    assert "--no-pipeline-parallel" not in arguments("megatron-deepspeed")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8"])
def test_megatron_deepspeed_agrees_with_its_json(precision: str) -> None:
    """Stage, precision, batch and clipping are the same on the command line and in the JSON."""
    for layout in layouts():
        program = program_for(
            make_plan(make_job("megatron-deepspeed", LLAMA, precision=precision), layout)
        )
        read, config = parsed(program, "megatron-deepspeed"), json.loads(program.files[0].text)
        assert read["--zero-stage"] == config["zero_optimization"]["stage"]
        assert read["--global-batch-size"] == config["train_batch_size"]
        assert read["--micro-batch-size"] == config["train_micro_batch_size_per_gpu"]
        assert read["--clip-grad"] == config["gradient_clipping"]
        for key in ("fp16", "bf16"):
            assert ("--" + key in read) == config.get(key, {"enabled": False})["enabled"]


def test_megatron_deepspeed_offload_has_a_cpu_optimizer() -> None:
    """ZeRO-Offload refuses any optimizer but DeepSpeedCPUAdam, which --cpu-optimizer makes."""
    both = Layout(data=8, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    read = arguments("megatron-deepspeed", layout=both)
    assert {"--cpu-optimizer", "--remote-device"} <= read.keys()


def test_megatron_lm_recomputation_is_complete() -> None:
    """Full recomputation comes with a method and a layer count, selective with neither."""
    full = arguments("megatron-lm", layout=replace(THREE_D, recompute=Recompute.FULL))
    selective = arguments("megatron-lm", layout=replace(THREE_D, recompute=Recompute.SELECTIVE))
    assert (full["--recompute-method"], full["--recompute-num-layers"]) == ("uniform", 1)
    assert selective["--recompute-granularity"] == "selective"
    assert "--recompute-method" not in selective


def test_megatron_lm_layers_may_count_embedding_and_loss() -> None:
    """126 layers don't divide over 16 stages, 128 with embedding and loss do; 96 layers need no
    such thing.
    """
    flag = "--account-for-loss-in-pipeline-split"
    assert flag in arguments("megatron-lm", llama(layers=126))
    assert flag not in arguments("megatron-lm", llama(layers=96))


def test_megatron_lm_shortens_the_last_stage() -> None:
    """61 layers on 16 stages: the last gets 1, which leaves 60 for the other fifteen."""
    layout = Layout(data=8, pipeline=16)
    assert arguments("megatron-lm", DEEPSEEK, layout)["--decoder-last-pipeline-num-layers"] == 1
    assert "--decoder-last-pipeline-num-layers" not in arguments("megatron-lm")


def test_megatron_lm_grouped_queries_and_latent_attention_exclude_each_other() -> None:
    """Grouped-query attention is asked for where it is used, and never beside multi-head latent
    attention.
    """
    assert arguments("megatron-lm", LLAMA)["--num-query-groups"] == 8
    latent = arguments("megatron-lm", DEEPSEEK)
    assert latent["--kv-lora-rank"] == 512
    assert "--group-query-attention" not in latent
    assert latent["--attention-backend"] == "auto"
    assert latent["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert latent["--moe-router-score-function"] == "sigmoid"


@pytest.mark.parametrize(
    ("tree", "base", "epsilon"),
    [
        ("megatron-lm", "--rotary-base", "--norm-epsilon"),
        ("megatron-deepspeed", "--rotary-position-embeddings-theta", "--layernorm-epsilon"),
    ],
)
def test_rotary_base_and_epsilon_are_the_models(tree: Flavour, base: str, epsilon: str) -> None:
    """Theta, the rotating share and the norms' epsilon are given: the scripts' defaults are another
    model's.
    """
    model = llama(rotary_base=500000.0, rotary_fraction=0.25, norm_epsilon=1e-6)
    read = arguments(tree, model)
    assert (read[base], read["--rotary-percent"], read[epsilon]) == (500000, 0.25, 1e-6)
    assert base not in arguments(tree, GPT)


def test_megatron_lm_scales_positions_as_llama_does() -> None:
    """Llama 3.1's scaling is one of the tree's options; a model without it asks for none."""
    scaled = arguments("megatron-lm", llama(rotary_scaling="llama3", rotary_scaling_factor=32.0))
    assert "--use-rope-scaling" in scaled and scaled["--rope-scaling-factor"] == 32
    assert "--use-rope-scaling" not in arguments("megatron-lm", LLAMA)


def test_megatron_lm_routes_by_groups_as_deepseek_does() -> None:
    """DeepSeek's groups of experts and the factor on their sum are given, other models have
    neither.
    """
    model = deepseek(router_groups=8, router_top_groups=4, router_scale=2.5)
    read = arguments("megatron-lm", model)
    names = (
        "--moe-router-num-groups",
        "--moe-router-group-topk",
        "--moe-router-topk-scaling-factor",
    )
    assert tuple(read[name] for name in names) == (8, 4, 2.5)
    assert not set(names) & arguments("megatron-lm", MIXTRAL).keys()


def test_the_routers_loss_has_the_coefficient_of_the_models_config() -> None:
    """Megatron-LM gets the config's coefficient unchanged, as NVIDIA's converter hands it on, but
    gpt-oss's 0.9.
    """
    option, name = "--moe-aux-loss-coeff", {"name": "m", "source": "test"}
    for family, given, weight in (
        ("mixtral", None, 0.001),
        ("mixtral", 0.05, 0.05),
        ("mixtral", 0.0, 0.0),
        ("mixtral", 1.0, 1.0),
        ("mixtral", 2, 2.0),
        ("gpt_oss", 0.9, 0.001),
        ("gpt_oss", 0.01, 0.01),
    ):
        model = model_from_config({"model_type": family, "router_aux_loss_coef": given}, **name)
        assert arguments("megatron-lm", model)[option] == [weight]
    latent = model_from_config({"model_type": "deepseek_v3", "aux_loss_alpha": 0.0001}, **name)
    assert arguments("megatron-lm", latent)[option] == [0.0001]


@pytest.mark.parametrize(("seq_aux", "kind"), [(True, "seq_aux_loss"), (False, "aux_loss")])
def test_the_routers_loss_is_of_what_the_models_config_says(seq_aux: bool, kind: str) -> None:
    """Megatron-LM balances each sequence by itself where the config does, as Kimi-K2's."""
    shape = {"model_type": "deepseek_v3", "aux_loss_alpha": 0.001, "seq_aux": seq_aux}
    model = model_from_config(shape, name="m", source="test")
    assert arguments("megatron-lm", model)["--moe-router-load-balancing-type"] == [kind]


@pytest.mark.parametrize(
    ("rate", "least"), [(3e-4, "3e-05"), (1.5e-4, "1.5e-05"), (1.234567890123e-4, None)]
)
def test_computed_numbers_have_no_rounding_error(rate: float, least: str | None) -> None:
    """A tenth of 3e-4 is written as 3e-05, and the rate as it was given."""
    words = program_for(
        make_plan(make_job("megatron-lm", GPT, learning_rate=rate), THREE_D)
    ).arguments
    given, tenth = (words[words.index(option) + 1] for option in ("--lr", "--min-lr"))
    assert float(given) == rate and tenth == (least or "1.23456789012e-05")


def test_megatron_lm_chooses_after_the_softmax_for_one_expert() -> None:
    """The script refuses one expert a token with a softmax over the chosen alone."""
    flag = "--moe-router-pre-softmax"
    assert flag in arguments("megatron-lm", mixtral(experts_per_token=1))
    assert flag not in arguments("megatron-lm", MIXTRAL)


def test_the_softmax_is_where_the_models_config_says() -> None:
    """Weights that don't add up to 1 are of a softmax before the choice: `norm_topk_prob`, by the
    class's default.
    """
    for family, given, before in (
        ("qwen3_moe", {}, True),
        ("qwen3_moe", {"norm_topk_prob": True}, False),
        ("deepseek_v2", {}, True),
        ("olmoe", {"norm_topk_prob": True}, False),
        ("mixtral", {}, False),
        ("deepseek_v3", {}, False),
    ):
        model = model_from_config(
            {"model_type": family, "num_experts_per_tok": 4, **given}, name="m", source="test"
        )
        assert ("--moe-router-pre-softmax" in arguments("megatron-lm", model)) == before, (
            family,
            given,
        )


def test_a_mixture_in_the_spec_has_the_router_of_its_keys() -> None:
    """An inline mixture has the scores, groups and factor that its keys say, and else a softmax
    over the chosen.
    """
    shape = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    experts = {"vocab_size": 128, "gated_mlp": True, "num_experts": 8, "num_experts_per_tok": 2}
    said = {"scoring_func": "sigmoid", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
    options = [
        f"--moe-router-{name}"
        for name in ("score-function", "num-groups", "group-topk", "topk-scaling-factor")
    ]
    for keys, expected in ((said, ["sigmoid", 4, 2, 2.5]), ({}, ["softmax", None, None, None])):
        read = arguments(
            "megatron-lm", model_from_config({**shape, **experts, **keys}, name="m", source="test")
        )
        assert [read.get(option) for option in options] == expected
    soft = model_from_config({**shape, **experts, "norm_topk_prob": False}, name="m", source="test")
    assert "--moe-router-pre-softmax" in arguments("megatron-lm", soft)


def test_megatron_lm_offload_brings_what_it_needs() -> None:
    """CPU offload of the optimizer needs the precision-aware one."""
    read = arguments("megatron-lm", layout=replace(THREE_D, offload=Offload.OPTIMIZER))
    assert {
        "--optimizer-cpu-offload",
        "--use-precision-aware-optimizer",
        "--use-distributed-optimizer",
    } <= read.keys()


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-bridge"])
def test_offload_is_pinned_where_the_host_has_room(framework: str) -> None:
    """States that fit in the host's memory once, but not in pinned buffers, aren't pinned: the
    files have, word for word, what the plan says that it fits with.
    """
    job = make_job(framework, LLAMA)
    layout = replace(THREE_D, pipeline=1, offload=Offload.OPTIMIZER)
    ends = host_band(job, memory(job, layout))
    for needed, is_pinned in ((float(ends.high), True), ((ends.low + ends.high) / 2, False)):
        cluster = replace(job.cluster, host_memory_bytes=needed / (1 - job.headroom) + 1)
        plan = make_plan(replace(job, cluster=cluster), layout)
        plan = replace(plan, memory=memory(plan.job, layout))
        text = host_text(plan)
        assert len(job.engine.unpins) == 2
        for unpinned in job.engine.unpins:
            assert (unpinned in words(program_for(plan))) is not is_pinned
            assert (unpinned in text) is not is_pinned


def test_memory_that_is_always_pinned_has_no_option_against_it() -> None:
    """FSDP2's files can't keep states out of pinned memory, so that none is named."""
    job = make_job("huggingface", LLAMA)
    job = replace(job, framework=job.framework.shardings["fsdp2"], headroom=0.0)
    layout = Layout(data=8, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    ledger = memory(job, layout)
    ends = host_band(job, ledger)
    cluster = replace(job.cluster, host_memory_bytes=(ends.low + ends.high) / 2)
    plan = replace(make_plan(replace(job, cluster=cluster), layout), memory=ledger)
    assert host_text(plan).endswith("GiB per node; too large at the upper end")


@pytest.mark.parametrize(
    ("generation", "stage", "expected"),
    [("ampere", 1, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), ("blackwell", 1, {}), ("hopper", 3, {})],
)
def test_one_hardware_queue_before_blackwell_and_without_fsdp(
    generation: str, stage: int, expected: dict[str, str]
) -> None:
    """Tensor parallelism needs CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell; FSDP refuses it."""
    job = make_job("megatron-lm", LLAMA, generation=generation)
    layout = Layout(data=8, tensor=8, zero_stage=stage)
    assert program_for(make_plan(job, layout)).environment == expected


def test_megatron_deepspeed_sequence_parallelism_needs_one_hardware_queue() -> None:
    """The script raises without the variable, on every generation."""
    job = make_job("megatron-deepspeed", generation="blackwell")
    assert program_for(make_plan(job, THREE_D)).environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_programs_are_deterministic() -> None:
    """The same plan gives an equal program each time."""
    for tree in TREES:
        plan = make_plan(make_job(tree, DEEPSEEK), THREE_D)
        assert program_for(plan) == program_for(plan)


KNOBS = Layout(
    data=8,
    tensor=4,
    context=8,
    expert=4,
    zero_stage=1,
    gradient_accumulation=4,
    sequence_parallel=True,
    zero_copies=2,
)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"tensor_overlap": True}, {"--tp-comm-overlap": True}),
        (
            {"expert_overlap": True},
            {"--overlap-moe-expert-parallel-comm": True, "--delay-wgrad-compute": True},
        ),
        ({"context_heads": 8}, {"--cp-comm-type": ["a2a"]}),
        (
            {"context_heads": 2},
            {"--cp-comm-type": ["a2a+p2p"], "--hierarchical-context-parallel-sizes": [2, 4]},
        ),
        ({"zero_copies": 4}, {"--num-distributed-optimizer-instances": 4}),
        ({"expert_tensor": 2}, {"--expert-tensor-parallel-size": 2}),
    ],
)
def test_each_knob_has_its_options(changes: dict[str, Any], options: dict[str, Any]) -> None:
    """A knob adds its own options and changes no other; neighbouring context ranks are the first
    level.
    """
    job = make_job("megatron-lm", MIXTRAL, generation="hopper")
    plain, turned = (
        parsed(program_for(make_plan(job, layout)), "megatron-lm")
        for layout in (KNOBS, replace(KNOBS, **changes))
    )
    assert {name: value for name, value in turned.items() if plain.get(name) != value} == options
    assert plain.keys() <= turned.keys()


def test_overlapped_experts_have_queues_of_their_own() -> None:
    """One hardware queue would run the all-to-all behind the other micro-batch's compute."""
    job = make_job("megatron-lm", MIXTRAL, generation="hopper")
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    assert program_for(make_plan(job, KNOBS)).environment[name] == "1"
    assert (
        program_for(make_plan(job, replace(KNOBS, expert_overlap=True))).environment[name] == "32"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor_overlap": True},
        {"expert_overlap": True, "zero_copies": 4},
        {"context_heads": 8},
        {"context_heads": 2, "expert_tensor": 4},
    ],
)
def test_knobs_are_read_back(changes: dict[str, Any]) -> None:
    """What is rendered of a layout is read as that layout."""
    layout = replace(KNOBS, **changes)
    program = program_for(make_plan(make_job("megatron-lm", MIXTRAL, generation="hopper"), layout))
    document = read_by(read_file, text_of("\n".join(words(program)), "arguments.txt"))
    context = Context(gpus=layout.world)
    [run] = megatron_facts(Submission(programs=PROGRAMS, documents=(document,), context=context))
    names = (
        "tensor_overlap",
        "expert_overlap",
        "zero_copies",
        "context_heads",
        "expert_tensor",
        "expert",
        "context",
    )
    assert {name: getattr(run.job.pins, name) for name in names} == {
        name: getattr(layout, name) for name in names
    }


@pytest.mark.parametrize(
    ("changes", "scales", "unsaid"),
    [
        ({}, "1 --mscale-all-dim 1", ""),
        ({"mscale_all_dim": 0.5}, "1 --mscale-all-dim 0.5", ""),
        ({"mscale": None, "mscale_all_dim": None, "beta_fast": None}, "1", ""),
        ({"mscale_all_dim": 0}, "1", ""),
        ({"mscale": 0}, None, ""),
        ({"beta_fast": 1}, None, " with beta_fast 1.0"),
        ({"attention_factor": 2.0}, None, " with attention_factor 2.0"),
        (
            {"original_max_position_embeddings": 8192, "truncate": False},
            None,
            " with original_max_position_embeddings 8192 and truncate false",
        ),
    ],
)
def test_latent_attention_has_yarn_where_megatron_has_it(
    changes: dict[str, Any], scales: str | None, unsaid: str
) -> None:
    """YaRN's factor and scales are written for latent attention; its other numbers have no option,
    which a finding says, with their values.
    """
    yarn = {
        "type": "yarn",
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "beta_fast": 32,
        "beta_slow": 1,
    }
    scaling = {**yarn, "original_max_position_embeddings": 4096, **changes}
    config = {**load_catalog().models["deepseek-v3"].config, "rope_scaling": scaling}
    made = replace(
        make_job("megatron-lm", DEEPSEEK), model=model_from_config(config, name="a", source="a")
    )
    written = " ".join(words(program_for(make_plan(made, KNOBS))))
    assert (f"--rotary-scaling-factor 40 --mscale {scales}" in written) == (scales is not None)
    assert ("--rotary-scaling-factor" in written) == (scales is not None)
    missing = f"yarn scaling of rotary positions{unsaid}"
    assert (missing in missing_parts(made)) == (scales is None)


@pytest.mark.parametrize(
    ("release", "depths", "written"),
    [("0.19.2", 0, True), ("0.18.2", 0, False), ("0.19.2", 1, False)],
)
def test_yarn_is_written_where_the_release_has_options(
    release: str, depths: int, written: bool
) -> None:
    """From 0.19 on YaRN's numbers are options, but not beside depths of further predictions; where
    they aren't said, the plan says that the model would train without.
    """
    spec = {
        "framework": "megatron-lm",
        "megatron_version": release,
        "model": "gpt-oss-20b",
        "cluster": "nvidia/dgx-h100",
        "gpus": 64,
        "training": {"global_batch": 512, "mtp_depths": depths},
        "layout": {"expert": 8},
    }
    plan = dsgen.estimate(dsgen.load_job(spec))
    text = " ".join(program_for(plan).arguments)
    numbers = "--yarn-original-max-position-embeddings 4096 --yarn-beta-fast 32 --yarn-beta-slow 1"
    assert (f"{numbers} --no-yarn-correction-range-round-to-int" in text) is written
    assert ("--position-embedding-type yarn" in text) is written
    assert ("yarn scaling of rotary positions" in missing_parts(plan.job)) is not written
