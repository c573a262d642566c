"""The whole run: failures, saving, time limits, evaluation, energy."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp
from typing import Any

import pytest

import dsgen
from dsgen.estimate.saving import Saving, assumptions, best_interval_s
from dsgen.estimate.whole_run import Run, energy_j, evaluations
from dsgen.search.plan import Plan
from dsgen.units import DAY
from tests.jobs import job

LLAMA = "examples/llama-3.1-405b-h100.yaml"


def plan(**overrides: Any) -> Plan:
    """The small job's plan, of a hundred steps' length unless it says otherwise."""
    known = {"training__duration": {"steps": 100}, "layout__micro_batch": 1} | overrides
    return dsgen.estimate(job(**known))


def run(**overrides: Any) -> Run:
    """Its run."""
    found = plan(**overrides).run
    assert found is not None
    return found


def saving(
    interval: int = 60, *, save: float = 30.0, restart: float = 600.0, failure: float = 20_000.0
) -> Saving:
    """Checkpoints of steps of a second each."""
    return Saving(
        checkpoint_bytes=1e12,
        save_s=save,
        restart_s=restart,
        failure_s=failure,
        step_s=1.0,
        best_interval_steps=1,
        interval_steps=interval,
        saves_at_limit=True,
    )


def simulated(run: Saving, work_s: float, seed: int) -> float:
    """Seconds that a run takes with failures drawn one after another."""
    draw, clock, done = random.Random(seed), 0.0, 0.0
    fails = draw.expovariate(1 / run.failure_s)
    while done < work_s:
        needed = run.interval_steps * run.step_s + run.save_s
        if fails >= needed:
            clock, fails, done = (
                clock + needed,
                fails - needed,
                done + run.interval_steps * run.step_s,
            )
            continue
        clock += fails
        fails = draw.expovariate(1 / run.failure_s)
        while fails < run.restart_s:  # another failure while it starts again
            clock, fails = clock + fails, draw.expovariate(1 / run.failure_s)
        clock, fails = clock + run.restart_s, fails - run.restart_s
    return clock


def test_dalys_interval_in_numbers() -> None:
    """A minute to save and a day between failures: Young's sqrt(2 · 60 · 86,400) = 3,220 s, and
    Daly's 3,180 s.
    """
    assert best_interval_s(60, DAY) == pytest.approx(3180, abs=1)
    assert best_interval_s(100, 40) == 40


@pytest.mark.parametrize(
    ("save", "failure"), [(20.0, 140_000.0), (3.0, 8_000.0), (300.0, 20_000.0)]
)
def test_no_other_interval_loses_less(save: float, failure: float) -> None:
    """Daly's interval is the best of the time that his model gives, to a thousandth."""
    best = round(best_interval_s(save, failure))
    least = min(
        saving(each, save=save, failure=failure).elapsed_s(1e6) for each in range(1, 10 * best, 7)
    )
    assert saving(best, save=save, failure=failure).elapsed_s(1e6) <= 1.001 * least


@pytest.mark.parametrize("interval", [100, 1_000, 10_000])
def test_failures_drawn_one_by_one_take_as_long(interval: int) -> None:
    """Runs with drawn failures take what the formula says, to 5 %, with a good interval and with
    bad ones.
    """
    asked = saving(interval)
    mean = sum(simulated(asked, 2e6, seed) for seed in range(20)) / 20
    assert asked.elapsed_s(2e6) == pytest.approx(mean, rel=0.05)


def test_llamas_failures_and_goodput() -> None:
    """With its own 419 failures in 54 days on 2,048 nodes, Llama 3.1 405B keeps the more than 90 %
    that it had.
    """
    days = 54 * 2048 / 419
    given = {
        "reliability.node_days_between_failures": days,
        "training.duration": {"steps": 54 * DAY // 6},
    }
    alone = {"launch.arguments": [], "data.split": "1", "launch.time_limit": 1_000_000}
    known = dsgen.load_job(LLAMA, overrides={**given, **alone})
    found = dsgen.search(known).plans[0]
    assert found.run is not None
    assert found.run.failures == pytest.approx(419 * found.run.wall_s / (54 * DAY), rel=0.05)
    assert 0.9 < found.run.goodput_fraction < 0.95


def test_the_assumed_rate_of_failures_is_the_sources_mean() -> None:
    """One node in 210 days is the geometric mean of the five published rates, and their spread is
    its own.
    """
    from math import log
    from statistics import geometric_mean, stdev

    rates = [419 / 54 / 2.048, 6.5, 2.34, 105 / 60 / 0.124, 1 / 7 / 0.048]  # in 1,000 node-days
    known = assumptions()["node_days_between_failures"]
    assert known.value == pytest.approx(1000 / geometric_mean(rates), rel=0.01)
    assert known.spread == pytest.approx(stdev(map(log, rates)), rel=0.01)
    assert known.range == (known.value / exp(known.spread), known.value * exp(known.spread))


def test_a_given_interval_is_kept_and_the_best_shown_beside() -> None:
    """The job's own interval is the one that counts; the best is known all the same, and loses
    less.
    """
    length = {"steps": 1_000_000}
    free, asked = (
        run(training__duration=length),
        run(training__duration=length, output__save_interval=7),
    )
    assert asked.save_interval_steps == 7
    assert asked.best_save_interval_steps == free.save_interval_steps
    assert asked.wall_s > free.wall_s


def test_segments_start_and_save_each() -> None:
    """A run that saves at its limit takes as many jobs as its time makes, each less its start and
    its checkpoint.
    """
    known = {"training__duration": {"steps": 100_000}, "output__checkpoints": "/scratch/run"}
    whole = run(**known)
    assert whole.segments == 1
    limited = run(**known, launch__time_limit="04:00:00")
    useful = 4 * 3600 - whole.restart_s - whole.save_s
    assert limited.segments == -(-whole.wall_s // useful)
    assert limited.wall_s - whole.wall_s == pytest.approx(
        (limited.segments - 1) * (whole.restart_s + whole.save_s)
    )


@pytest.mark.parametrize("framework", ["huggingface", "deepspeed"])
def test_programs_that_save_nothing_at_their_limit_save_often_enough(framework: str) -> None:
    """The Trainer and own scripts save several times within a limit, and what a job does after that
    is lost.
    """
    known = {
        "framework": framework,
        "training__duration": {"steps": 1_000_000},
        "output__checkpoints": "/scratch/run",
    }
    free, limited = run(**known), run(**known, launch__time_limit="01:00:00")
    step_s = limited.duration_s / limited.steps
    assert free.save_interval_steps * step_s > 3600 > 4 * limited.save_interval_steps * step_s
    cycle_s = limited.save_interval_steps * step_s + limited.save_s
    useful_s = (3600 - limited.restart_s) // cycle_s * cycle_s
    assert limited.segments is not None
    assert limited.wall_s / limited.segments == pytest.approx(3600, rel=0.05)
    assert limited.segments * useful_s >= limited.duration_s


def test_an_interval_beyond_the_limit_is_told() -> None:
    """A Trainer's interval that no job gets to is a warning, and the interval of its hint gets
    there.
    """
    known = {
        "framework": "huggingface",
        "training__duration": {"steps": 1_000_000},
        "launch__time_limit": "04:00:00",
    }
    late = plan(**known, output__checkpoints="/scratch/run", output__save_interval=900_000)
    told = next(finding for finding in late.findings if finding.rule == "TIME002")
    assert "900,000 steps" in told.message
    assert late.run is not None
    assert told.hint is not None
    assert told.hint.startswith(
        f"save every {late.run.best_save_interval_steps:,} steps, or use time_limit: "
    )
    soon = run(
        **known,
        output__checkpoints="/scratch/run",
        output__save_interval=late.run.best_save_interval_steps,
    )
    assert soon.segments is not None


def test_a_limit_that_no_checkpoint_is_reached_in() -> None:
    """A limit below start and checkpoint makes no number of jobs, and a finding says so."""
    short = plan(training__duration={"steps": 100_000}, launch__time_limit="00:10:00")
    assert short.run is not None
    assert short.run.segments is None
    assert [finding.rule for finding in short.findings if finding.rule.startswith("TIME")] == [
        "TIME002"
    ]


def test_evaluation_by_the_programs_defaults() -> None:
    """Megatron evaluates each 1,000 steps unless told otherwise, and not where the split leaves
    nothing for it.
    """
    assert evaluations(job()) == (1000, 100)
    assert evaluations(job(launch__arguments=["--eval-interval", "50", "--eval-iters=7"])) == (
        50,
        7,
    )
    assert evaluations(job(data__split="100,0,0")) == (0, 0)
    assert evaluations(job(framework="deepspeed")) == (0, 0)
    often = run(launch__arguments=["--eval-interval", "50", "--eval-iters", "3"])
    assert often.evaluation_s == pytest.approx(2 * 3 / 3 * often.duration_s / 100, rel=0.25)
    assert run().evaluation_s == 0


def test_gpt_3s_energy() -> None:
    """GPT-3's 14.8 days on 10,000 V100 come out at the published 1,287 MWh, at the PUE of 1.1 of
    its site.
    """
    whole = job(cluster="nvidia/dgx-2", gpus=10_000, training__precision="fp16")
    joules = energy_j(whole, 14.8 * DAY)
    assert joules is not None
    assert joules / 1.2 * 1.1 / 3.6e9 == pytest.approx(1287, rel=0.01)
    unknown = replace(whole.cluster, accelerator=replace(whole.cluster.accelerator, tdp_watts=None))
    assert energy_j(replace(whole, cluster=unknown), DAY) is None


def test_a_ramp_lengthens_the_run() -> None:
    """A batch ramp-up makes more steps of the same tokens, and takes longer: small batches have
    bigger bubbles.
    """
    pinned = {"training__duration": {"tokens": 1e9}, "layout__pipeline": 4, "layout__data": 4}
    plain = run(**pinned)
    ramped = run(**pinned, training__batch_ramp={"start": 8, "increment": 8, "samples": 100_000})
    assert ramped.steps > plain.steps
    assert ramped.duration_s > plain.duration_s
    assert ramped.ramp_s == pytest.approx(ramped.duration_s - plain.duration_s, rel=0.05)


def test_other_precisions_are_those_of_the_hardware() -> None:
    """The same plan is faster in fp8 on a Hopper GPU; an Ampere one has none to compare with."""
    hopper = plan(
        cluster="nvidia/dgx-h100", model__hidden_size=8192, model__intermediate_size=28672
    )
    assert hopper.other_precisions["fp8"] < float(hopper.step_time.total_s)
    assert set(plan().other_precisions) == {"fp16"}


def limited(**overrides: Any) -> list[tuple[str, str, str]]:
    """Findings on the time limit of a long run: rule, severity, hint."""
    known = {
        "training__duration": {"steps": 5_000_000},
        "launch__time_limit": "1-00:00:00",
    } | overrides
    found = [finding for finding in plan(**known).findings if finding.rule.startswith("TIME")]
    return [(finding.rule, finding.severity.value, finding.hint or "") for finding in found]


def test_a_run_that_nothing_continues() -> None:
    """A limit below the run's time is a warning as long as no job goes on from the one before, with
    the ways out.
    """
    ((rule, severity, hint),) = limited()
    assert (rule, severity) == ("TIME001", "warning")
    assert "set output.checkpoints" in hint
    assert "use time_limit: " in hint
    ((_, severity, hint),) = limited(
        output__checkpoints="/scratch/run", launch__slurm={"continue": "none"}
    )
    assert severity == "warning"
    assert "launch.slurm.continue: requeue" in hint
    ((_, severity, hint),) = limited(output={"checkpoints": "/scratch/run", "resume": False})
    assert severity == "warning"
    assert "output.resume: true" in hint


def test_a_run_that_goes_on_is_a_note() -> None:
    """Where jobs follow one another from checkpoint to checkpoint, their number is no more than a
    note.
    """
    ((rule, severity, _),) = limited(output__checkpoints="/scratch/run")
    assert (rule, severity) == ("TIME001", "note")
    ((_, severity, _),) = limited(
        output__checkpoints="/scratch/run", launch__slurm={"continue": "chain"}
    )
    assert severity == "note"


def test_the_hinted_limit_passes() -> None:
    """A run with the hinted limit has nothing to say of it."""
    ((_, _, hint),) = limited()
    longer = hint.partition("time_limit: ")[2].partition(",")[0]
    assert limited(launch__time_limit=longer) == []


def test_an_interval_among_the_scripts_arguments_counts() -> None:
    """The script's own --save-interval is the run's interval: it wins on the command line too."""
    length = {"steps": 1_000_000}
    told = run(
        training__duration=length, launch__arguments=["--save", "/scratch", "--save-interval", "9"]
    )
    assert told.save_interval_steps == 9
    assert run(training__duration=length).save_interval_steps == told.best_save_interval_steps


@pytest.mark.parametrize(
    ("failure_minutes", "interval_minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)]
)
def test_the_interval_is_that_of_dalys_figures(
    failure_minutes: float, interval_minutes: float
) -> None:
    """The best interval is what the paper's figures 3 to 5 state, for checkpoints of five
    minutes.
    """
    found = best_interval_s(5 * 60, failure_minutes * 60) / 60
    assert found == pytest.approx(interval_minutes, rel=0.01)


@pytest.mark.parametrize("framework", ["deepspeed", "huggingface", "megatron-lm"])
@pytest.mark.parametrize("steps", [40, 938, 1172])
def test_short_runs_save_a_few_times(framework: str, steps: int) -> None:
    """A run that is shorter than the best interval saves three times and at its end, or in a tenth
    of its time.
    """
    found = run(framework=framework, training__duration={"steps": steps})
    in_a_tenth = [saves for saves in (1, 2, 3, 4) if 9 * saves * found.save_s <= found.duration_s]
    assert found.save_interval_steps == -(-steps // max(in_a_tenth, default=1))
    assert (len(in_a_tenth) == 4) == (steps > 40)


@pytest.mark.parametrize(
    ("launch", "said", "days"),
    [
        ({"target": "skypilot", "skypilot": {"use_spot": True}}, {}, 10.9),
        ({"target": "azureml", "azureml": {"queue_settings": {"job_tier": "spot"}}}, {}, 10.9),
        ({"target": "skypilot", "skypilot": {"use_spot": False}}, {}, 210),
        ({"target": "slurm"}, {"preemptible": True}, 10.9),
        ({"target": "skypilot", "skypilot": {"use_spot": True}}, {"preemptible": False}, 210),
        (
            {"target": "skypilot", "skypilot": {"use_spot": True}},
            {"node_days_between_failures": 3},
            3,
        ),
    ],
)
def test_machines_that_may_be_taken_away_fail_more_often(
    launch: dict[str, Any], said: dict[str, Any], days: float
) -> None:
    """Spot and low-priority machines fail as others do and are taken away besides; a figure of the
    job's own counts.
    """
    found = plan(launch=launch, reliability=said, training__duration={"steps": 10**7})
    assert found.saving.failure_s * found.job.nodes / DAY == pytest.approx(days, rel=0.01)


def test_checkpoints_that_are_kept() -> None:
    """The Trainer keeps four unless told otherwise, other programs all; a run that outgrows its
    room is warned of.
    """
    length = {
        "training__duration": {"steps": 10**6},
        "output__checkpoints": "/c",
        "output__save_interval": 100,
    }
    assert run(framework="huggingface", **length).kept == 4
    assert run(framework="huggingface", output__keep=7, **length).kept == 7
    assert run(framework="deepspeed", **length).kept == 10**4
    retained = run(
        framework="megatron-lm", launch__arguments=["--save-retain-interval", "1000"], **length
    )
    assert retained.kept == 1000
    found = run(framework="deepspeed", **length)
    assert found.kept_bytes == 10**4 * found.checkpoint_bytes
    short = plan(framework="deepspeed", output__space_tb=found.kept_bytes / 2e12, **length)
    (warned,) = [each for each in short.findings if each.rule == "DISK001"]
    assert warned.hint is not None
    enough = plan(framework="deepspeed", output__space_tb=found.kept_bytes / 0.9e12, **length)
    assert "DISK001" not in {each.rule for each in enough.findings}
    assert warned.hint.startswith("set save_interval to 200 or more steps")
