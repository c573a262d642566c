"""What is left out at once, and what the fit may move."""

from __future__ import annotations

import csv

import pytest

from benchmarks.clusters import JOINED, cluster
from benchmarks.fit import FEWEST_CLUSTERS, Parameter, feeds, parameters, usable
from benchmarks.measured import DATA, Run
from dsgen.estimate.rates import constants, selectors


@pytest.fixture(name="runs", scope="module")
def _runs() -> list[Run]:
    """The runs that the fit sees."""
    return usable()


@pytest.fixture(name="moved", scope="module")
def _moved(runs: list[Run]) -> list[Parameter]:
    """What the fit moves."""
    return parameters(runs)


def test_clusters_are_made_of_sources() -> None:
    """Every source that a cluster joins is in the collection, and in one cluster only."""
    with DATA.open(newline="") as file:
        known = {row["source_key"] for row in csv.DictReader(file)}
    joined = [source for sources in JOINED.values() for source in sources]
    assert set(joined) <= known
    assert len(joined) == len(set(joined))


def test_runs_of_joined_sources_share_a_cluster(runs: list[Run]) -> None:
    """BigScience's two partitions are left out together; a source by itself is its own cluster."""
    found = {run.source: cluster(run) for run in runs}
    assert found["bigsci-a100"] == found["bigsci-v100"] == "jean-zay"
    assert found["ds-azure"] == "ds-azure"


def test_no_constant_is_fitted_to_a_cluster_of_its_own(
    runs: list[Run], moved: list[Parameter]
) -> None:
    """What the fit moves acts on runs of three clusters where a framework, network or kernels pick
    it, else of two.
    """
    for parameter in moved:
        family = constants()[parameter.name]
        feeding = set[str]()
        for run in runs:
            if (
                len(feeding) < FEWEST_CLUSTERS[family.by]
                and cluster(run) not in feeding
                and family.pick(selectors(run.job)[family.by])[0] == parameter.key
                and feeds(run, parameter.name)
            ):
                feeding.add(cluster(run))
        assert len(feeding) >= FEWEST_CLUSTERS[family.by], parameter


def test_constants_of_few_clusters_stay_at_their_priors(moved: list[Parameter]) -> None:
    """Constants that the fit doesn't move have their prior as value, so that no earlier fit is left
    in them.
    """
    fitted = {(p.name, p.key) for p in moved}
    for name, family in constants().items():
        for key, constant in family.by_key.items():
            assert (name, key) in fitted or constant.value == constant.prior, (name, key)
