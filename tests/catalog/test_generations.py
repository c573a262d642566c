"""An accelerator of a generation that nobody has heard of is one file: its abilities hold
everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsgen.catalog import Accelerator
from dsgen.catalog.records import build_catalog, read_yaml
from dsgen.estimate.groups import sends_tokens_once_per_node, sends_tokens_once_per_rank
from dsgen.estimate.layout import Layout
from dsgen.estimate.rates import constants, rates
from dsgen.estimate.states import fp8_copies
from dsgen.job.records import Job
from dsgen.programs.frameworks import program_for
from dsgen.programs.job_rules import check_job
from tests.jobs import job
from tests.programs.plans import make_plan

NEWER: dict[str, Any] = {
    "fp8_recipes": ["delayed", "mxfp8"],
    "fp8_both_ways": True,
    "one_queue": False,
    "flash_attention": True,
    "grouped_products": True,
    "transformer_engine": True,
    "deepep": True,
    "product_workspace_mib": 32,
    "engine_workspace_mib": 32,
    "cudnn_attention": True,
    "source": "made up",
}
OLDER: dict[str, Any] = {
    **NEWER,
    "fp8_recipes": ["delayed"],
    "fp8_both_ways": False,
    "one_queue": True,
    "flash_attention": False,
    "deepep": False,
}


def made_up(generation: dict[str, Any]) -> Accelerator:
    """An accelerator of a generation called `feynman`, from the catalog's file with the two entries
    in it.
    """
    document = read_yaml("dsgen.catalog", "accelerators.yaml")
    document["generations"]["feynman"] = generation
    document["f100"] = {**document["b200-180gb-sxm"], "generation": "feynman", "aliases": []}
    return build_catalog(document, {}, {}).accelerators["f100"]


def on(accelerator: Accelerator, **overrides: Any) -> Job:
    """The small job on nodes of an accelerator."""
    small = job(cluster="nvidia/dgx-b200", training__precision="fp8", **overrides)
    return replace(small, cluster=replace(small.cluster, accelerator=accelerator))


@pytest.mark.parametrize(
    ("generation", "recipe", "rules"),
    [
        (NEWER, "delayed", set()),
        (NEWER, "mxfp8", set()),
        (NEWER, "blockwise", {"PREC033"}),
        (OLDER, "mxfp8", {"ATT001", "PREC033"}),
        (OLDER, "delayed", {"ATT001"}),
    ],
)
def test_rules_take_its_abilities(generation: dict[str, Any], recipe: str, rules: set[str]) -> None:
    """Recipes of fp8 and the kernels of attention that its entry lacks are refused, and no
    others.
    """
    whole = on(made_up(generation), training__fp8_recipe=recipe, training__attention="flash")
    assert {finding.rule for finding in check_job(whole)} == rules


@pytest.mark.parametrize(("generation", "copies"), [(NEWER, 1), (OLDER, 2)])
def test_fp8_tensors_have_the_copies_that_its_products_need(
    generation: dict[str, Any], copies: int
) -> None:
    """Where products read an fp8 tensor both ways there is one copy of it, else there are two."""
    assert fp8_copies(on(made_up(generation))) == copies


@pytest.mark.parametrize(("generation", "queues"), [(NEWER, None), (OLDER, "1")])
def test_files_ask_for_one_queue_where_it_needs_that(
    generation: dict[str, Any], queues: str | None
) -> None:
    """CUDA_DEVICE_MAX_CONNECTIONS is written where collectives need one queue to start in time."""
    plan = make_plan(on(made_up(generation)), Layout(data=8, tensor=2))
    assert program_for(plan).environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == queues


@pytest.mark.parametrize(("generation", "once"), [(NEWER, True), (OLDER, False)])
def test_tokens_cross_nodes_once_where_deepep_runs(generation: dict[str, Any], once: bool) -> None:
    """Experts on two nodes are reached by DeepEP where its kernels run."""
    whole, layout = on(made_up(generation)), Layout(data=16, expert=16)
    assert bool(sends_tokens_once_per_node(whole, layout)) == once
    assert bool(sends_tokens_once_per_rank(whole, layout)) == once


def test_its_constants_are_those_of_no_generation() -> None:
    """A generation that nobody measured takes each constant's default."""
    measured = rates(on(made_up(NEWER)))
    for name in ("product_start_s", "streaming_fraction", "context_bytes"):
        assert getattr(measured, name) == constants()[name].by_key["default"].value


def test_an_accelerator_needs_the_entry_of_its_generation() -> None:
    """A generation without an entry is refused by its name, and by the accelerator's."""
    document = read_yaml("dsgen.catalog", "accelerators.yaml")
    document["f100"] = {**document["b200-180gb-sxm"], "generation": "feynman", "aliases": []}
    with pytest.raises(ValueError, match="'f100': no generation is called 'feynman'"):
        build_catalog(document, {}, {})


def test_every_generation_has_an_accelerator_and_a_source() -> None:
    """No entry of a generation is left over, and each says where its abilities are from."""
    document = read_yaml("dsgen.catalog", "accelerators.yaml")
    generations = document.pop("generations")
    assert set(generations) == {
        entry["generation"] for entry in document.values() if "generation" in entry
    }
    assert all(entry["source"] for entry in generations.values())
