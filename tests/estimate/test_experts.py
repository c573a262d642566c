"""Memory traffic of experts besides their products: sorting tokens, adding biases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dsgen
from dsgen.estimate.activations import kept_per_token
from dsgen.estimate.collectives import all_gather_s, all_to_all_s, dispatch_s
from dsgen.estimate.communication import expert_s
from dsgen.estimate.compute import busiest, layer_times, permuted_copies, repeated_modules_s
from dsgen.estimate.groups import group, segment, sends_tokens_once_per_node
from dsgen.estimate.host import start_s
from dsgen.estimate.layout import Layout, Layouts, Modules, Recompute
from dsgen.estimate.stages import stage_contents
from dsgen.search.feasible import make_plan
from tests.jobs import SMALL, job
from tests.models import changed


@pytest.mark.parametrize(("expert", "copies"), [(1, 14), (4, 14), (8, 6)])
def test_tokens_are_sorted_again_for_a_rank_of_several_experts(expert: int, copies: int) -> None:
    """Copies of a token are read and written to sort and unsort them, twice where a rank has
    several experts or all.
    """
    whole = job(model="mixtral-8x7b", gpus=8, training__global_batch=8)
    assert (
        float(permuted_copies(whole, Layout(data=8, expert=expert), whole.model.feed_forward))
        == copies
    )


def test_flex_dispatcher_copies_tokens_once_a_rank() -> None:
    """Over nodes, a token comes to each of 16 ranks that have one of its 8 experts once, and is
    copied there.
    """
    whole = job(model="qwen3-30b-a3b", cluster="nvidia/dgx-h100", training__global_batch=16)
    ranks = 16 * (1 - (15 / 16) ** 8)
    assert float(
        permuted_copies(whole, Layout(data=16, expert=16), whole.model.feed_forward)
    ) == pytest.approx(2 * (8 + ranks))


def test_one_rank_has_no_flex_dispatcher() -> None:
    """Megatron-LM refuses the flex dispatcher where one rank has all experts: their tokens are
    sorted twice there.
    """
    whole = job(model="qwen3-30b-a3b", cluster="nvidia/dgx-h100", training__global_batch=16)
    flex = replace(whole, training=replace(whole.training, dispatcher="deepep"))
    alone, inside = (
        float(permuted_copies(flex, Layout(data=16, expert=e), flex.model.feed_forward))
        for e in (1, 8)
    )
    assert alone == 2 * (1 + 8) + 4 * 8 and inside < alone


@pytest.mark.parametrize(
    ("expert", "dispatcher", "reaches"),
    [(128, "deepep", True), (256, "deepep", False), (256, "hybridep", True)],
)
def test_deepep_has_kernels_for_up_to_twenty_nodes(
    expert: int, dispatcher: str, reaches: bool
) -> None:
    """Experts over 16 nodes are reached by DeepEP, and over 32 by HybridEP alone."""
    whole = job(model="deepseek-v3", cluster="nvidia/dgx-h100", gpus=2048)
    named = replace(whole, training=replace(whole.training, dispatcher=dispatcher))
    layout = Layout(data=2048, expert=expert)
    assert bool(sends_tokens_once_per_node(named, layout)) is reaches


@pytest.mark.parametrize(
    ("hidden", "expert", "takes"),
    [(2880, 8, True), (2880, 16, False), (2816, 16, True), (8192, 8, False), (8192, 16, False)],
)
def test_deepep_takes_tokens_of_some_widths(hidden: int, expert: int, takes: bool) -> None:
    """DeepEP's kernels stop between nodes at tokens that are no multiple of 512 bytes, GPT-OSS's
    among them, and everywhere at tokens of which its buffers don't hold half: no plan has them.
    """
    named = job(
        model={
            **SMALL["model"],
            "hidden_size": hidden,
            "head_dim": 64,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 512,
        },
        framework="megatron-lm",
        cluster="nvidia/dgx-h100",
        gpus=16,
        training__global_batch=16,
        training__dispatcher="deepep",
    )
    plan = make_plan(named, Layout(data=16, expert=expert, zero_stage=1))
    assert ("MOE018" not in {finding.rule for finding in plan.findings}) is takes
    unnamed = replace(named, training=replace(named.training, dispatcher=None))
    other = make_plan(unnamed, plan.layout)
    written = [file.text for file in dsgen.render(other) if file.path == "arguments.txt"]
    assert ("deepep" in written[0].split()) is (takes and expert == 16)


@pytest.mark.parametrize(("ranks", "milliseconds"), [(32, 3.66), (64, 6.17)])
def test_dispatch_over_nodes_takes_as_long_as_was_measured(ranks: int, milliseconds: float) -> None:
    """4,096 tokens of 7,168 elements go to 8 experts each over H100 in the time that HybridEP's
    kernels were measured with, within 5 % (deepseek-ai/DeepEP, branch hybrid-ep,
    docs/README_Hybrid-EP.md, 16 multiprocessors).
    """
    whole = job(
        model="kimi-k2",
        framework="megatron-lm",
        cluster="nvidia/dgx-h100",
        gpus=64,
        training__global_batch=64,
        training__dispatcher="hybridep",
    )
    part, size = whole.model.feed_forward, 2 * 4096 * 7168
    seconds = float(dispatch_s(whole, group(whole, ranks, 1), size, part))
    assert 1e3 * seconds == pytest.approx(milliseconds, rel=0.05)


@pytest.mark.parametrize(
    ("gpus", "expert", "asked", "nodes", "inside"),
    [
        (1152, 64, None, 16, 64),
        (1152, 24, None, 18, 24),
        (1152, 48, None, 12, 48),
        (1152, 1, None, 18, 1),
        (1152, 64, 18, 18, 8),
        (1152, 64, 9, 9, 4),
        (1152, 64, 24, 16, 64),
        (256, 64, None, 16, 64),
    ],
)
def test_segments_of_racks_hold_groups_of_experts(
    gpus: int, expert: int, asked: int | None, nodes: int, inside: int
) -> None:
    """Of the sizes that divide the nodes the one that holds groups of experts is taken, else the
    largest; where Slurm is asked for 18 nodes of a rack, 64 neighbours lie in two, of which one has
    8. A size that racks can't have is as none.
    """
    whole = job(
        model="kimi-k2",
        framework="megatron-lm",
        cluster="nvidia/gb200-nvl72-compute-tray",
        gpus=gpus,
        training__global_batch=gpus,
    )
    options = {} if asked is None else {"directives": {"segment": asked}}
    whole = replace(whole, launch=replace(whole.launch, options=options))
    layout = Layout(data=gpus, expert=expert)
    assert segment(whole, layout) == nodes
    places = np.arange(gpus) // (4 * nodes)
    groups = places.reshape(-1, expert)
    smallest = min(np.unique(each, return_counts=True)[1].min() for each in groups)
    assert group(whole, expert, 1).per_node == smallest == inside
    assert group(whole, expert, 1, layout).per_node == inside


def test_segments_hold_what_they_can_of_a_layout() -> None:
    """Where no size holds experts, it is the largest piece that counts; then tensor and context,
    and what shares gradients. Columns have what their rows have.
    """
    whole = job(
        model="kimi-k2",
        framework="megatron-lm",
        cluster="nvidia/gb200-nvl72-compute-tray",
        gpus=1152,
        training__global_batch=1152,
    )
    expected = {
        Layout(data=1152, expert=128): 16,
        Layout(data=192, tensor=2, context=3, expert=64): 16,
        Layout(data=96, tensor=4, context=3): 18,
        Layout(data=64, pipeline=18, expert=8): 16,
        Layout(data=1152, zero_copies=18): 16,
        Layout(data=72, pipeline=16, expert=8): 18,
    }
    assert [int(segment(whole, layout)) for layout in expected] == [*expected.values()]
    assert segment(whole, Layouts.of([*expected])).tolist() == [*expected.values()]


@pytest.mark.parametrize(
    ("model", "precision", "batch"),
    [
        ("nemotron-3-ultra-550b-a55b", "nvfp4", 1152),
        ("qwen3.5-397b-a17b", "fp8", 1152),
        ("nemotron-3-super-120b-a12b", "nvfp4", 1152),
        ("deepseek-v3", "fp8", 1152),
        ("llama-3.1-70b", "bf16", 1152),
    ],
)
def test_larger_racks_are_no_slower(model: str, precision: str, batch: int) -> None:
    """Racks of 72 GPUs have every segment that racks of 64 have."""
    whole = job(
        model=model,
        framework="megatron-lm",
        cluster="gb200-nvl72",
        gpus=576,
        training__global_batch=batch,
        training__precision=precision,
        **({"training__fp8_recipe": "mxfp8"} if precision == "fp8" else {}),
    )
    step_s = []
    for domain in (72, 64, 36, 32):
        racks = replace(whole, cluster=replace(whole.cluster, link_domain=domain))
        plan = dsgen.search(racks, top=1).plans[0]
        step_s.append(plan.choice.decides_s)
    assert step_s == sorted(step_s)


def test_an_expert_keeps_its_output_where_that_is_weighed() -> None:
    """Megatron-LM multiplies an expert's activation with the token's weight, others its output,
    which they keep.
    """
    part = job(model="mixtral-8x7b").model.feed_forward
    weighed, other = (part.kept_bytes(3, 2, 2, weighs_output=choice) for choice in (True, False))
    assert weighed - other == 2 * part.per_token * part.routed_hidden


@pytest.mark.parametrize(("model", "each"), [("mixtral-8x7b", 9), ("deepseek-v3", 13)])
def test_a_router_keeps_its_scores(model: str, each: int) -> None:
    """An expert's probability, its score for the balance of experts and its mask take 9 bytes a
    token, and a sigmoid four more.
    """
    part = job(model=model).model.feed_forward
    assert part.routing_bytes == each * part.experts


def test_deepep_counts_eight_ranks_a_node() -> None:
    """DeepEP has no kernels for NVLink across nodes: there, experts over several racks get every
    copy of a token.
    """
    whole = job(
        model="qwen3-30b-a3b",
        cluster="nvidia/gb200-nvl72-compute-tray",
        gpus=128,
        training__global_batch=128,
    )
    assert not sends_tokens_once_per_node(whole, Layout(data=128, expert=128))

    # Segments of 72 split groups of 16 into pieces of eight, which are no nodes of eight.
    racks = job(
        model="qwen3-30b-a3b",
        cluster="nvidia/gb300-nvl72-compute-tray",
        gpus=576,
        training__global_batch=576,
    )
    launch = replace(racks.launch, options={"directives": {"segment": 18}})
    racks = replace(racks, launch=launch)
    split = Layout(data=576, expert=16)
    assert group(racks, split.expert, split.expert_tensor).per_node == 8
    assert not sends_tokens_once_per_node(racks, split)

    single = job(
        model="qwen3-30b-a3b", cluster="nvidia/dgx-b200", gpus=128, training__global_batch=128
    )
    assert sends_tokens_once_per_node(single, Layout(data=128, expert=128))


@pytest.mark.parametrize("network", ["efa", "ethernet", "omni-path"])
def test_networks_that_deepep_does_not_know_send_every_copy_of_a_token(network: str) -> None:
    """DeepEP drives NICs of InfiniBand and RoCE; over others every copy is sent, and no file asks
    for it.
    """
    infiniband = job(
        model="qwen3-30b-a3b", cluster="nvidia/dgx-h100", training__global_batch=16, gpus=16
    )
    other = replace(infiniband, cluster=replace(infiniband.cluster, network=network))
    layout = Layout(data=16, expert=16, zero_stage=1)
    assert sends_tokens_once_per_node(infiniband, layout) and not sends_tokens_once_per_node(
        other, layout
    )
    dispatchers = [
        next(
            file.text
            for file in dsgen.render(make_plan(each, layout))
            if file.path == "arguments.txt"
        ).split()
        for each in (infiniband, other)
    ]
    assert ["deepep" in arguments for arguments in dispatchers] == [True, False]


@pytest.mark.parametrize(("framework", "waits"), [("huggingface", True), ("megatron-lm", False)])
def test_experts_of_transformers_are_one_kernel_where_cards_have_it(
    framework: str, waits: bool
) -> None:
    """Transformers starts one kernel for all experts where the card groups their products, else one
    for each, which short sequences wait for; Megatron-Core starts each product by itself.
    """
    sizes = {"training__sequence_length": 512, "training__global_batch": 8}
    grouped = job(framework=framework, model="qwen3-30b-a3b", cluster="dgx-h100", gpus=8, **sizes)
    card = grouped.cluster.accelerator
    alone = replace(card, generation=replace(card.generation, grouped_products=False))
    apart = replace(grouped, cluster=replace(grouped.cluster, accelerator=alone))
    layout = Layout(data=8, zero_stage=3 if waits else 1, gradient_accumulation=1)
    one, each = (float(make_plan(made, layout).step_time.compute_s) for made in (grouped, apart))
    assert (each > 1.5 * one) is waits
    assert waits or each == one


def test_biases_of_experts_take_time() -> None:
    """Megatron-LM adds experts' biases in kernels of their own, two an expert forward and six
    backward, with 28 and 40 bytes an element; fused experts of a graph have none.
    """
    whole = job(model="gpt-oss-20b", cluster="nvidia/dgx-h100", gpus=8, training__global_batch=8)
    plain = replace(whole, model=changed(whole.model, expert_bias=False))
    forward, backward = _more(whole, plain)
    held = 32 / 8
    starts = held * start_s(whole)
    assert (backward - 6 * starts) / (forward - 2 * starts) == pytest.approx(40 / 28)
    graphs = replace(whole.training, cuda_graphs="full_iteration", dispatcher="hybridep")
    assert _more(replace(whole, training=graphs), replace(plain, training=graphs)) == (0, 0)


def test_clamping_takes_time() -> None:
    """Megatron-LM clamps both halves of what the gated activation takes before its fused kernel, 16
    bytes an element forward and 30 backward; and once more where the activation is repeated.
    """
    whole = job(model="gpt-oss-20b", cluster="nvidia/dgx-h100", gpus=8, training__global_batch=8)
    plain = replace(whole, model=changed(whole.model, clamp=None))
    forward, backward = _more(whole, plain)
    assert backward / forward == pytest.approx(30 / 16)
    again = Layout(
        data=8,
        expert=8,
        recompute=Recompute.SELECTIVE,
        recompute_modules=int(Modules.MOE_ACT),
    )
    time, layer = layer_times(whole, again)[0], whole.model.averaged.largest
    repeated = [
        float(repeated_modules_s(each, again, time, kind))
        for each, kind in ((whole, layer), (plain, plain.model.averaged.largest))
    ]
    assert repeated[0] - repeated[1] == pytest.approx(forward)


def test_clamping_keeps_what_it_takes_and_gives() -> None:
    """Gate and up are kept before and after they are clamped, 2 bytes an element more each; not
    where fused experts clamp, nor where the activation is computed again.
    """
    whole = job(model="gpt-oss-20b", cluster="nvidia/dgx-h100", gpus=8, training__global_batch=8)
    graphs = replace(whole.training, cuda_graphs="full_iteration", dispatcher="hybridep")
    again = Layout(data=8, expert=8, recompute=Recompute.SELECTIVE)
    again = replace(again, recompute_modules=int(Modules.MOE_ACT))
    part = whole.model.feed_forward
    per_layer = 4 * part.per_token * part.expert_width
    for changed_job, layout, more in (
        (whole, Layout(data=8, expert=8), per_layer * whole.model.layers),
        (replace(whole, training=graphs), Layout(data=8, expert=8), 0),
        (whole, again, 0),
    ):
        plain = replace(changed_job, model=changed(changed_job.model, clamp=None))
        held = stage_contents(changed_job, layout, 0)
        kept, less = (float(kept_per_token(each, layout, held)) for each in (changed_job, plain))
        assert kept - less == pytest.approx(more, abs=1e-6)


def _more(whole: dsgen.Job, plain: dsgen.Job) -> tuple[float, float]:
    """Seconds of a layer's passes that `whole` takes and `plain` doesn't."""
    layout = Layout(data=8, expert=8)
    more, less = (layer_times(each, layout)[0] for each in (whole, plain))
    return float(more.forward_s - less.forward_s), float(more.backward_s - less.backward_s)


def test_exchanges_take_no_steps_of_a_ring() -> None:
    """Ranks of one NVLink domain send to each other all at once: 64 wait for an exchange's start as
    long as 8.
    """
    whole = job(
        model="qwen3-235b-a22b",
        framework="megatron-lm",
        cluster="nvidia/gb300-nvl72",
        gpus=64,
        training__global_batch=64,
    )
    few, many = (float(all_to_all_s(whole, group(whole, ranks, 1), 0.0)) for ranks in (8, 64))
    assert few == many > 0


def test_all_to_alls_come_with_counts_and_weights() -> None:
    """Megatron-LM's all-to-all dispatcher gathers how many tokens go where, and sends their weights
    after them, and back as gradients; the flex dispatcher does neither.
    """
    whole = job(
        model="qwen3-30b-a3b",
        framework="megatron-lm",
        cluster="nvidia/dgx-h100",
        gpus=8,
        training__global_batch=8,
        training__dispatcher="alltoall",
    )
    part, layout = whole.model.feed_forward, Layout(data=8, expert=8)
    ring, tokens_here = group(whole, 8, 1), whole.training.sequence_length
    copies, load = 8 * tokens_here, busiest(whole, layout, part)
    time = layer_times(whole, layout)[0]
    alone, _ = expert_s(whole, layout, time, 0.0, part)
    tokens = 4 * load * all_to_all_s(whole, ring, 2 * part.routed_hidden * copies)
    weights = 2 * all_to_all_s(whole, ring, 4 * copies * load)
    assert float(alone - tokens - weights) == pytest.approx(float(all_gather_s(whole, ring, 0.0)))

    flex = replace(whole, training=replace(whole.training, dispatcher="hybridep"))
    bare, _ = expert_s(flex, layout, time, 0.0, part)
    assert float(bare) == pytest.approx(float(tokens))


@pytest.mark.parametrize(
    ("gpus", "nodes", "ranks"), [(1024, 16, 64), (72, 18, 64), (152, 2, 8), (4, 1, 4)]
)
def test_groups_of_racks_are_those_that_every_rack_can_hold(
    gpus: int, nodes: int, ranks: int
) -> None:
    """Of 256 nodes, 16 lie together in racks of 18, so that no group of 64 GPUs leaves its rack."""
    racks = job(cluster="gb200-nvl72", gpus=gpus, training__global_batch=gpus)
    assert segment(racks, Layout(data=gpus)) == nodes
    assert int(group(racks, min(64, gpus), 1).per_node) == ranks
    assert job(cluster="nvidia/dgx-h100", gpus=64, training__global_batch=64).segments == (1,)
