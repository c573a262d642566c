"""Laws of what communication costs beside compute, and of the knobs that move it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dsgen.estimate.communication import boundary_s, context_s, expert_s, overlapped_s
from dsgen.estimate.compute import busiest, layer_times
from dsgen.estimate.layout import Layout, Modules, Offload, Recompute
from dsgen.estimate.products import Passes, exposed_s, spread_s
from dsgen.estimate.rates import rates
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Job
from tests.estimate.test_time_traps import seconds, with_network
from tests.jobs import job
from tests.models import changed

DEEPSPEED = {"framework": "deepspeed", "training__global_batch": 1024}


@pytest.mark.parametrize("window", [1.0, 2.0, 1e6])
def test_communication_that_fits_costs_the_slowdown_alone(window: float) -> None:
    """A second of communication beside a second of compute or more adds what it takes from the
    compute, no more.
    """
    assert float(exposed_s(job(), 1.0, window)) == pytest.approx(rates(job()).overlap_cost)


def test_communication_that_does_not_fit_is_what_compute_leaves() -> None:
    """Beyond the window every second of communication is a second of the step."""
    ten, eleven = (float(exposed_s(job(), c, 1.0)) for c in (10.0, 11.0))
    assert eleven - ten == pytest.approx(1.0)
    assert ten == pytest.approx(9.0 + rates(job()).overlap_cost)


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize("messages", [1, 7])
def test_chunks_hide_more(chunks: int, messages: int) -> None:
    """Interleaving never raises what is left of gradient communication, whatever it takes beside
    the passes.
    """
    for communication in (0.1, 1.0, 5.0, 50.0):
        plain = float(spread_s(job(), communication, 1.0, 1, 8, messages))
        divided = float(spread_s(job(), communication, 1.0 / chunks, chunks, 8, messages))
        assert divided <= plain * (1 + 1e-9)


def test_chunks_hide_gradients_behind_many_passes() -> None:
    """Eight chunks on eight stages hide gradients that take three whole backward passes; one chunk
    hides one pass.
    """
    cost = rates(job()).overlap_cost
    assert float(spread_s(job(), 3.0, 1.0, 1, 8, 1000)) == pytest.approx(2.0 + cost, rel=0.01)
    left = float(spread_s(job(), 3.0, 1 / 8, 8, 8, 1000)) - cost * 3
    assert left == pytest.approx((1 - cost) * (3 / 8 - 1 / 8), rel=0.02)


def test_full_sharding_is_bound_by_the_link_or_by_compute() -> None:
    """Under ZeRO-3 a slow network is the whole step, and a fast one a small part of it."""
    whole = job(**DEEPSPEED)
    layout = {"data": 16, "zero_stage": 3, "micro_batch": 8, "gradient_accumulation": 8}
    fast = step_time(with_network(whole, 100), Layout(**layout))
    assert float(fast.data_s) < 0.25 * float(fast.compute_s)
    slow, slower = (seconds(with_network(whole, f), "total", **layout) for f in (0.002, 0.001))
    assert slower == pytest.approx(2 * slow, rel=0.05)


def test_an_offloaded_optimizer_waits_for_gradients() -> None:
    """Under ZeRO-3, gradients that are copied to the host one by one are not hidden behind the
    backward pass.
    """
    whole = job(**DEEPSPEED)
    layout = {"data": 16, "zero_stage": 3, "micro_batch": 8, "gradient_accumulation": 8}
    here, there = (
        seconds(whole, "data", offload=o, **layout) for o in (Offload.NONE, Offload.OPTIMIZER)
    )
    assert there > 1.5 * here


@pytest.mark.parametrize(
    ("precision", "recipe", "gathered"),
    [("fp8", "delayed", 1), ("fp8", "mxfp8", 2), ("nvfp4", "delayed", 0.5)],
)
def test_narrow_parameters_are_gathered_as_they_are(
    precision: str, recipe: str, gathered: float
) -> None:
    """Parameters kept in fp8 take half the volume of their gather, but for MXFP8's, and those in
    4 bits a quarter: on a slow network, that share of what the gather adds.
    """
    layout = Layout(data=16, tensor=8, zero_stage=1, gradient_accumulation=1)
    found: dict[bool, float] = {}
    for kept in (False, True):
        whole = job(
            cluster="nvidia/dgx-b200",
            training__precision=precision,
            training__fp8_recipe=recipe,
            training__fp8_parameters=kept,
        )
        found[kept] = float(step_time(with_network(whole, 1e-4), layout).data_s)
    gradients = 4  # bytes a parameter that are reduced
    expected = (gradients + gathered) / (gradients + 2)
    assert found[True] / found[False] == pytest.approx(expected, rel=0.02)


# Context


def test_grouped_queries_save_what_the_ring_sends() -> None:
    """With a quarter of the key and value heads, a ring across nodes sends a quarter: the queries
    stay.
    """
    whole = with_network(job(training__sequence_length=16384, gpus=64), 0.001)
    layout = Layout(data=1, context=64)
    few = whole.model
    many = replace(whole, model=changed(few, kv_heads=few.heads))
    one, four = (float(context_s(j, layout, 0.0)) for j in (whole, many))
    assert four == pytest.approx(4 * one, rel=0.1)


def test_short_chunks_pay_for_the_steps_of_the_ring() -> None:
    """At 256 tokens a rank a ring of 64 is slower than the attention it divides; at 16,384 it is
    not.
    """
    for tokens, holds in ((256, True), (16384, False)):
        whole = job(training__sequence_length=64 * tokens, gpus=64)
        ring = step_time(whole, Layout(data=1, context=64))
        ideal = float(step_time(whole, Layout(data=1, context=1)).total_s) / 64
        assert (float(ring.total_s) > 1.5 * ideal) is holds


def test_heads_are_copied_before_and_after_they_are_exchanged() -> None:
    """However fast the links, queries, output twice and values are read and written beside each
    exchange of heads.
    """
    whole = job(training__sequence_length=1 << 20, gpus=8)
    accelerator = replace(whole.cluster.accelerator, link_bytes_per_s=1e18)
    fast = replace(whole, cluster=replace(whole.cluster, accelerator=accelerator))
    copied = (
        2 * (1 << 20) / 8 * whole.model.head_dim * (3 * whole.model.heads + whole.model.kv_heads)
    )
    # read and written, forward and backward
    least_s = 2 * 2 * copied / accelerator.memory_bytes_per_s
    found = float(context_s(fast, Layout(data=1, context=8, context_heads=8), 0.0))
    assert least_s < found < 2 * least_s


def test_heads_exchanged_inside_the_node_shorten_the_ring() -> None:
    """On a slow network, hierarchical context parallelism beats a ring of all ranks."""
    whole = with_network(job(training__sequence_length=65536, gpus=16), 0.02)
    ring, both = (seconds(whole, "context", data=1, context=16, context_heads=h) for h in (1, 4))
    assert both < ring


# Experts


def test_the_busiest_rank_is_busier_with_fewer_tokens() -> None:
    """One rank has the mean; of several the largest load falls towards it as tokens grow, and never
    beyond twice.
    """
    moe = job(model="mixtral-8x7b", gpus=16, training__global_batch=16)
    assert float(busiest(moe, Layout(data=16), moe.model.feed_forward)) == 1.0
    loads = [
        float(
            busiest(
                replace(moe, training=replace(moe.training, sequence_length=s)),
                Layout(data=16, expert=8),
                moe.model.feed_forward,
            )
        )
        for s in (1, 16, 256, 4096)
    ]
    assert all(1 < fewer < more <= 2 for more, fewer in pairwise(loads))


def test_overlapped_experts_need_micro_batches() -> None:
    """All-to-alls beside another micro-batch's compute cost less, and the more micro-batches there
    are the less.
    """
    moe = job(model="mixtral-8x7b", gpus=16, training__global_batch=1024)

    def saved(m: int) -> float:
        layout: dict[str, Any] = {
            "data": 16,
            "expert": 8,
            "zero_stage": 1,
            "gradient_accumulation": m,
        }
        plain, beside = (seconds(moe, "expert", expert_overlap=o, **layout) for o in (False, True))
        return 1 - beside / plain

    assert saved(1) == pytest.approx(0)
    assert 0 < saved(4) < saved(64) < 1


def test_each_exchange_has_a_pass_of_its_own_beside_it() -> None:
    """One that outlasts attention's forward pass waits, however long the experts take."""
    moe = job(model="mixtral-8x7b", gpus=16, training__global_batch=1024)
    layout = Layout(data=16, expert=16, zero_stage=1, gradient_accumulation=64, expert_overlap=True)
    even = layer_times(moe, layout)[0]
    both = Passes(even.forward_s, even.backward_s)
    experts_alone = replace(
        even, core=Passes(0.0, 0.0), products=both, mlp=both, shared=Passes(0.0, 0.0)
    )
    waits, less = (
        float(overlapped_s(layout, *expert_s(moe, layout, time, 0.0, moe.model.feed_forward)))
        for time in (experts_alone, even)
    )
    assert waits > 1.2 * less


def test_experts_that_are_cut_gather_their_tokens() -> None:
    """Experts cut by tensor ranks communicate more than whole ones on as many ranks."""
    moe = job(model="mixtral-8x7b", gpus=16, training__global_batch=16)
    layout = {"data": 8, "tensor": 2, "expert": 4, "sequence_parallel": True}
    assert seconds(moe, "expert", expert_tensor=2, **layout) > 1.5 * seconds(
        moe, "expert", **layout
    )


# Knobs


def test_user_buffers_hide_what_their_products_outlast() -> None:
    """Chunks of collectives beside their products cost less than waiting, and not less than the
    first chunk.
    """
    gpt = job(model="megatron-18.4b", gpus=8, training__global_batch=8)
    layout = {"data": 1, "tensor": 8, "sequence_parallel": True, "gradient_accumulation": 8}
    waits, beside = (seconds(gpt, "tensor", tensor_overlap=o, **layout) for o in (False, True))
    assert waits / 8 < beside < 0.7 * waits


def test_nothing_runs_beside_tensor_parallelism_in_fsdp_before_blackwell() -> None:
    """The files unset the one queue that overlap needs under Megatron's FSDP, so that user buffers
    save no time.
    """
    layout = {"data": 2, "tensor": 4, "sequence_parallel": True, "gradient_accumulation": 4}
    for cluster, hides in (("nvidia/dgx-h100", False), ("nvidia/dgx-b200", True)):
        own = job(model="llama-2-13b", gpus=8, training__global_batch=8, cluster=cluster)
        plain, zero1 = (seconds(own, "tensor", zero_stage=stage, **layout) for stage in (3, 1))
        buffered = seconds(own, "tensor", zero_stage=3, tensor_overlap=True, **layout)
        assert (buffered < plain) == (plain <= zero1) == hides


def test_copies_of_the_shards_keep_gathers_inside_the_node() -> None:
    """On a slow network, a copy of what ZeRO shards on every node costs less than one spread over
    all.
    """
    for whole, stage in ((job(), 1), (job(**DEEPSPEED), 3)):
        slow = with_network(whole, 0.01)
        one, two = (
            seconds(slow, "data", data=16, zero_stage=stage, zero_copies=c, micro_batch=3)
            for c in (1, 2)
        )
        assert two < one


def test_a_second_copy_of_parameters_halves_the_gathers() -> None:
    """ZeRO++ gathers parameters over the network once instead of twice: two of three transfers are
    left.
    """
    slow = with_network(job(**DEEPSPEED), 0.001)
    one, two = (seconds(slow, "data", data=16, zero_stage=3, zero_hpz=h) for h in (1, 8))
    assert two == pytest.approx(2 / 3 * one, rel=0.05)


def test_a_second_copy_on_the_host_is_fetched_in_every_backward_pass() -> None:
    """With offloaded parameters, hpZ's second copy over 8 of 128 ranks is 16 times a rank's
    share.
    """
    whole, layout = (
        job(**DEEPSPEED),
        {"data": 128, "zero_stage": 3, "offload": Offload.OPTIMIZER_AND_PARAMETERS},
    )
    one, two, none = (
        seconds(whole, "offload", **{**layout, "zero_hpz": ranks, "offload": offload})
        for ranks, offload in (
            (1, layout["offload"]),
            (8, layout["offload"]),
            (1, Offload.OPTIMIZER),
        )
    )
    assert two - none > 8 * (one - none) > 0


def test_hidden_sends_slow_compute_as_other_hidden_communication_does() -> None:
    """Of sends beside compute a tenth is waited for, and the rest costs what all hidden
    communication does.
    """
    whole, constants = job(gpus=16), rates(job())
    layout = {"data": 2, "pipeline": 8, "gradient_accumulation": 64}
    two, four = (seconds(whole, "pipeline", virtual_pipeline=chunks, **layout) for chunks in (2, 4))
    waited = constants.send_exposed_share
    cost = waited + (1 - waited) * constants.overlap_cost
    alone = 2 * 2 * 8  # two chunks more, of eight stages, in both directions
    beside = 2 * (64 * 4 - 64 * 2) - alone
    assert (four - two) / float(boundary_s(whole, Layout(**layout))) == pytest.approx(
        alone + beside * cost
    )


def _repeated(whole: Job, **layout: Any) -> float:
    return seconds(whole, "recompute", data=16, micro_batch=3, **layout)


def test_fewer_repeated_layers_take_less_time() -> None:
    """Recomputing 3, 6 and 12 of 12 layers takes a quarter, half and all of full recomputation's
    time.
    """
    full = _repeated(job(), recompute=Recompute.FULL)
    for layers in (3, 6, 12):
        some = _repeated(job(), recompute=Recompute.FULL, recompute_layers=layers)
        assert some == pytest.approx(layers / 12 * full)


def test_modules_add_up() -> None:
    """Each module that is recomputed adds its forward time, and all together take less than the
    layer.
    """
    full = _repeated(job(), recompute=Recompute.FULL)
    chosen = (Modules.CORE_ATTN, Modules.CORE_ATTN | Modules.LAYERNORM)
    chosen = (*chosen, chosen[-1] | Modules.MLP)
    times = [
        _repeated(job(), recompute=Recompute.SELECTIVE, recompute_modules=modules)
        for modules in chosen
    ]
    assert 0 < times[0] < times[1] < times[2] < full


def test_a_part_of_the_optimizer_goes_to_the_host() -> None:
    """Half of the offloaded states cost half of the host's time."""
    whole = job(gpus=8)
    layout = {"data": 8, "zero_stage": 1, "offload": Offload.OPTIMIZER}
    part, all_ = (seconds(whole, "offload", offload_fraction=f, **layout) for f in (0.5, 1.0))
    assert part == pytest.approx(all_ / 2)
