"""Where ranks are, against the programs that place them."""

from __future__ import annotations

import pytest

from dsgen.estimate.layout import Layout
from dsgen.report.placement import place_of

SIZES = [(2, 2, 1, 2, 1), (4, 2, 2, 3, 2), (8, 4, 1, 1, 4), (6, 1, 2, 4, 3)]


def _layout(data: int, tensor: int, context: int, pipeline: int, expert: int) -> Layout:
    return Layout(data=data, tensor=tensor, context=context, pipeline=pipeline, expert=expert)


@pytest.mark.parametrize("sizes", SIZES)
def test_ranks_are_where_megatron_puts_them(sizes: tuple[int, int, int, int, int]) -> None:
    """Ranks of each group of Megatron-Core's own generator differ in that place alone."""
    state = pytest.importorskip("megatron.core.parallel_state")
    data, tensor, context, pipeline, _ = sizes
    made = state.RankGenerator(
        tp=tensor, ep=1, dp=data, pp=pipeline, cp=context, order="tp-cp-ep-dp-pp"
    )
    layout = _layout(*sizes)
    named = {"tp": "tensor", "cp": "context", "dp": "replica", "pp": "stage"}
    for token, name in named.items():
        for group in made.get_ranks(token):
            places = [place_of(layout, rank)._asdict() for rank in group]
            assert [place[name] for place in places] == [*range(len(group))]
            for other in {*named.values()} - {name}:
                assert len({place[other] for place in places}) == 1


@pytest.mark.parametrize("sizes", SIZES)
def test_experts_are_dealt_as_megatron_deals_them(sizes: tuple[int, int, int, int, int]) -> None:
    """Groups that exchange tokens are those of Megatron-Core's generator for expert layers."""
    state = pytest.importorskip("megatron.core.parallel_state")
    data, tensor, context, pipeline, expert = sizes
    layout, ranks = _layout(*sizes), data * tensor * context
    made = state.RankGenerator(
        tp=1, ep=expert, dp=ranks // expert, pp=pipeline, cp=1, order="tp-cp-ep-dp-pp"
    )
    for group in made.get_ranks("ep"):
        assert [place_of(layout, rank).expert for rank in group] == [*range(expert)]


def test_ranks_are_where_deepspeed_puts_them() -> None:
    """DeepSpeed's own topology of a pipeline has each rank at the same place."""
    topology = pytest.importorskip("deepspeed.runtime.pipe.topology")
    layout = _layout(4, 2, 1, 3, 1)
    made = topology.PipeModelDataParallelTopology(num_pp=3, num_dp=4, num_mp=2)
    for rank in range(layout.world):
        coordinates, place = made.get_coord(rank), place_of(layout, rank)
        assert (coordinates.pipe, coordinates.data, coordinates.model) == (
            place.stage,
            place.replica,
            place.tensor,
        )
