"""The fit to a cluster's own runs: it finds what is there, helps from few runs, and never hurts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import dsgen
from dsgen.estimate import posterior
from dsgen.estimate.calibration import MeasuredRun, NoUsableRuns, fit_calibration
from dsgen.estimate.ledgers import Memory
from dsgen.estimate.memory import memory
from dsgen.estimate.posterior import Vector, shrunken
from dsgen.estimate.rates import rates
from dsgen.estimate.step_time import step_time
from dsgen.job.records import Calibration, Job
from tests.jobs import SMALL, job

SCHEMA = Path(__file__).parents[2] / "schemas" / "calibration.schema.json"
#: Data-parallel traffic from little to much, on a model large enough to be bound by rates.
SLOW_NETWORK = {
    "accelerator": "a100-80gb-sxm",
    "accelerators_per_node": 8,
    "network": "infiniband",
    "network_gbits_per_s_per_node": 200,
}
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"gpus": 16, "layout__data": 16, "training__global_batch": 16},
    {"gpus": 16, "layout__data": 16, "training__global_batch": 64},
    {"gpus": 32, "layout__data": 32, "training__global_batch": 32},
    {"gpus": 32, "layout__data": 8, "layout__tensor": 4, "training__global_batch": 32},
    {"gpus": 64, "layout__data": 64, "training__global_batch": 64},
    {"gpus": 64, "layout__data": 16, "layout__pipeline": 4, "training__global_batch": 64},
    {"gpus": 64, "layout__data": 32, "layout__tensor": 2, "training__global_batch": 128},
    {"gpus": 128, "layout__data": 128, "training__global_batch": 128},
)


def jobs(**overrides: Any) -> list[Job]:
    """Llama 3 8B in eight layouts."""
    common = {
        "model": "llama-3-8b",
        "framework": "megatron-deepspeed",
        "layout__zero_stage": 1,
    } | overrides
    return [job(**{**common, **layout}) for layout in LAYOUTS]


def true_seconds(one: Job, factors: dict[str, float]) -> float:
    """Seconds of a step where the constants are these times the shipped ones."""
    truth = replace(one, calibration=Calibration(factors=tuple(factors.items())))
    return float(step_time(truth, dsgen.estimate(one).layout).total_s)


def measured(
    todo: Sequence[Job], factors: dict[str, float], noise: float = 0.0, seed: int = 0
) -> list[MeasuredRun]:
    """What a machine with these factors would measure, with noise."""
    generator = np.random.default_rng(seed)
    return [
        MeasuredRun(
            name=f"run {i}",
            job=one,
            layout=dsgen.estimate(one).layout,
            step_time_s=true_seconds(one, factors)
            * float(np.exp(noise * generator.standard_normal())),
        )
        for i, one in enumerate(todo)
    ]


def test_a_slow_network_is_found() -> None:
    """Of runs on a network at 0.6 of its shipped rate the network's factor comes out near 0.6,
    others near 1.
    """
    report = fit_calibration(
        measured(jobs(cluster=SLOW_NETWORK), {"network_fraction": 0.6}, noise=0.01)
    )
    factors = {item.name: item.factor for item in report.factors}
    assert factors["network_fraction"] == pytest.approx(0.6, abs=0.08)
    assert factors["product_fraction"] == pytest.approx(1, abs=0.06)
    assert report.time.before_mean > 0.05
    assert report.time.left_out_mean is not None
    assert report.time.left_out_mean < 0.03


@pytest.mark.parametrize("seed", range(8))
def test_three_noisy_runs_never_hurt(seed: int) -> None:
    """With three runs of 5 % noise the error of a run left out is never above the shipped
    model's.
    """
    generator = np.random.default_rng(seed)
    factors = {
        name: float(np.exp(0.2 * generator.standard_normal()))
        for name in ("product_fraction", "network_fraction")
    }
    chosen = [jobs()[i] for i in generator.choice(len(LAYOUTS), 3, replace=False)]
    report = fit_calibration(measured(chosen, factors, noise=0.05, seed=seed))
    assert report.time.left_out_mean is not None
    assert report.time.left_out_mean <= report.time.before_mean


def test_noise_alone_moves_little() -> None:
    """Five machines that are as shipped, measured with 3 % noise in three runs, are predicted
    within 3 % on average.
    """
    errors = []
    for seed in range(5):
        runs = measured(jobs(), {}, noise=0.03, seed=seed)
        calibration = fit_calibration(runs[:3]).calibration()
        others = [
            (true_seconds(run.job, dict(calibration.factors)), true_seconds(run.job, {}))
            for run in runs[3:]
        ]
        errors.append(np.mean([abs(estimated / true - 1) for estimated, true in others]))
    assert float(np.mean(errors)) < 0.03


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_runs_move_nothing(count: int) -> None:
    """Fewer than three runs, even if all are a fifth slower than estimated, keep every shipped
    constant.
    """
    runs = measured(jobs()[:count], {})
    report = fit_calibration([replace(run, step_time_s=1.2 * run.step_time_s) for run in runs])
    assert not report.helps
    assert all(
        result.after_s == result.before_s and result.left_out_s is None for result in report.runs
    )


def test_nonsense_is_not_fitted_to() -> None:
    """A run whose estimate is 178 % off is left out with both numbers and the likely causes."""
    runs = measured(jobs()[:4], {})
    report = fit_calibration([*runs[:3], replace(runs[3], step_time_s=runs[3].step_time_s / 2.78)])
    (excluded,) = report.excluded
    assert excluded.name == runs[3].name
    assert "is +178% off its" in excluded.reason
    assert "possible causes: the unit, another GPU count" in excluded.reason
    assert len(report.runs) == 3


def test_an_outlier_is_not_believed() -> None:
    """One run that waited twice as long for its data leaves the fit to the seven others."""
    runs = measured(jobs(), {"product_fraction": 0.9})
    runs[2] = replace(runs[2], step_time_s=2 * runs[2].step_time_s)
    report = fit_calibration(runs)
    honest = [result.after_s / result.measured_s for i, result in enumerate(report.runs) if i != 2]
    assert max(abs(share - 1) for share in honest) < 0.05


def test_runs_of_other_machines_are_left_out() -> None:
    """Runs on another accelerator than most, and runs in another unit, are named with the
    reason.
    """
    runs = measured(jobs(), {})
    (foreign,) = measured([job(cluster="nvidia/dgx-h100", framework="megatron-deepspeed")], {})
    unit = replace(runs[0], name="milliseconds", step_time_s=1000 * runs[0].step_time_s)
    report = fit_calibration([*runs, replace(foreign, name="h100"), unit])
    reasons = {item.name: item.reason for item in report.excluded}
    assert set(reasons) == {"h100", "milliseconds"}
    assert "h100-80gb-sxm" in reasons["h100"]
    assert "a100-80gb-sxm" in reasons["h100"]
    assert len(report.runs) == len(runs)


def test_without_usable_runs_there_is_no_fit() -> None:
    """No run, and no run near its estimate, is an error that names the reasons."""
    (run,) = measured(jobs()[:1], {})
    with pytest.raises(NoUsableRuns, match="there are no runs"):
        fit_calibration([])
    with pytest.raises(NoUsableRuns, match="possible causes: the unit"):
        fit_calibration([replace(run, step_time_s=1e6)])


def test_shares_end_at_one() -> None:
    """No factor takes a share of a rate beyond the whole."""
    fast = {"network_fraction": 1 / rates(jobs()[0]).network_fraction, "product_fraction": 1.3}
    report = fit_calibration(measured(jobs(), fast))
    for item in report.factors:
        if item.name.endswith(("_fraction", "_share", "_overlap")):
            assert item.factor * item.shipped <= 1.001


def test_the_memory_factor_is_found() -> None:
    """Of peaks whose activations are a fifth above the ledger, the memory factor comes out near
    1.2.
    """
    runs = [
        replace(run, peak_bytes=float(memory(run.job, run.layout).corrected(1.2).allocated_bytes))
        for run in measured(jobs(layout__micro_batch=1), {})
    ]
    report = fit_calibration(runs)
    assert report.memory is not None
    assert report.memory_factor == pytest.approx(1.2, abs=0.03)
    assert report.memory.after_mean < report.memory.before_mean


def test_a_memory_factor_leaves_states_and_context() -> None:
    """A factor scales what is allocated beyond the states, and adds as many bytes to what must
    fit.
    """
    one = jobs()[0]
    ledger: Memory = memory(one, dsgen.estimate(one).layout)
    more = ledger.corrected(1.5)
    assert more.optimizer_bytes == ledger.optimizer_bytes
    states = ledger.parameters_bytes + ledger.gradients_bytes + ledger.optimizer_bytes
    added = 0.5 * float(ledger.allocated_bytes - states)
    for name in ("allocated_bytes", "reserved_bytes", "device_bytes", "required_bytes"):
        assert float(getattr(more, name) - getattr(ledger, name)) == pytest.approx(added)
    assert ledger.corrected(1.0) is ledger


def test_the_file_round_trips(tmp_path: Path) -> None:
    """What the fit writes fulfils the published schema, and a job that names it has the same
    factors.
    """
    report = fit_calibration(measured(jobs(), {"network_fraction": 0.7}, noise=0.02))
    document = report.to_dict()
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    (tmp_path / "here.json").write_text(json.dumps(document))
    (tmp_path / "job.json").write_text(
        json.dumps({**SMALL, "framework": "megatron-deepspeed", "calibration": "here.json"})
    )
    loaded = dsgen.load_job(tmp_path / "job.json").calibration
    kept = {name: factor for name, factor in loaded.factors if factor != 1}
    assert kept == dict(report.calibration().factors)
    assert (loaded.spread, loaded.runs) == (round(report.spread, 4), len(LAYOUTS))
    assert loaded.source == "here.json"


def test_the_band_is_what_the_calibration_left() -> None:
    """A calibrated job's band is narrower than the shipped one when the runs agree, and says that
    it is calibrated.
    """
    report = fit_calibration(measured(jobs(), {"product_fraction": 0.85}, noise=0.01))
    one = jobs()[0]
    before = dsgen.estimate(one).uncertainty
    after = dsgen.estimate(replace(one, calibration=report.calibration())).uncertainty
    assert after.regime == "calibrated"
    assert after.step_time.high / after.step_time.low < before.step_time.high / before.step_time.low


@pytest.mark.parametrize(
    ("logarithms", "least", "most"),
    [
        ([0.1, 0.11, 0.09, 0.1, 0.1, 0.12], 0.09, 0.11),
        ([0.15, -0.1, 0.12, -0.08, 0.1, 0.02], 0.0, 0.03),
    ],
)
def test_corrections_count_as_far_as_they_predict(
    logarithms: list[float], least: float, most: float
) -> None:
    """Runs that agree are believed; of those that don't, a correction counts little, or nothing."""
    measured = np.array(logarithms)

    def residuals(x: Vector, only: int | None = None) -> Vector:
        return measured + x[0] if only is None else measured[only : only + 1] + x[0]

    found = shrunken(residuals, np.array([0.2]))
    assert least <= -found.x[0] <= most
    assert found.left_out is not None
    assert np.abs(np.expm1(found.left_out)).mean() <= np.abs(np.expm1(measured)).mean()


def test_a_gain_that_may_be_chance_corrects_nothing() -> None:
    """Runs of which a third are off the other way leave the constants as shipped, though the others
    would gain.
    """
    measured = np.array([0.12, -0.05, 0.08, 0.1, -0.04, 0.05])

    def residuals(x: Vector, only: int | None = None) -> Vector:
        return measured + x[0] if only is None else measured[only : only + 1] + x[0]

    assert shrunken(residuals, np.array([0.2])).x[0] == 0


def test_what_one_model_shows_is_not_believed_of_others() -> None:
    """Six runs of one model that are slow move a constant, but nothing where two other models' runs
    are not slow.
    """
    measured = np.array([0.15, 0.14, 0.16, 0.15, 0.16, 0.14, -0.02, -0.03, -0.05])

    def residuals(x: Vector, only: int | None = None) -> Vector:
        return measured + x[0] if only is None else measured[only : only + 1] + x[0]

    assert -shrunken(residuals, np.array([0.2])).x[0] > 0.1
    assert (
        shrunken(residuals, np.array([0.2]), [*6 * ["dense"], "routed", "routed", "long"]).x[0] == 0
    )


def test_of_few_groups_a_gain_is_as_likely_as_student_s_t_says() -> None:
    """Gains of 3 and 1 %, twice their standard error, are a gain with the probability 1/2 +
    arctan(2) / pi.
    """
    belief = posterior._belief(np.log1p(np.array([0.03, 0.01])), np.zeros(2), np.arange(2))
    assert belief == pytest.approx(0.5 + np.arctan(2) / np.pi, abs=1e-3)
