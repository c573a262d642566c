"""`dsgen plan` says of the best plan what `dsgen generate` says before it writes."""

from __future__ import annotations

from tests.cli.running import run

SMALL = ("--model", "gpt3-1.3b", "--cluster", "nvidia/dgx-h100", "--gpus", "8", "--global-batch", "256")
DURATION = "training.duration.tokens=1e10"
SHORT = (*SMALL, "--set", DURATION, "--set", "launch.time_limit=1:00:00", "--set", "output=null")


def test_findings_of_the_best_plan_are_printed() -> None:
    """A time limit below the run's length is a warning on stderr, and what a submission lacks is said."""
    result = run("plan", *SHORT)
    assert "[TIME001]" in result.stderr
    assert "Not ready to submit: no data (set data.path)" in result.stdout


def test_a_job_that_lacks_nothing_says_nothing() -> None:
    """With data, tokenizer and checkpoints given, nothing is missing."""
    given = (DURATION, "data.path=/d", "data.tokenizer.path=/t", "output.checkpoints=/c")
    result = run("plan", *SMALL, *(word for each in given for word in ("--set", each)))
    assert "Not ready" not in result.output
