"""Our verdict on DeepSpeed configs against that of DeepSpeed's own parser; and what our edits make
of the configs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.agreement_deepspeed import (
    WORLD,
    ask_dsgen,
    compare,
    fitted,
    is_json,
    real_configs,
    rendered_configs,
)
from benchmarks.deepspeed_mutations import mutants
from dsgen.check.rules.run import check_submission
from dsgen.findings import Finding
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.records import PROGRAMS
from dsgen.programs.releases import NEWEST
from dsgen.submission.submission import Context, Submission
from dsgen.text.hjson.edits import apply_edits
from dsgen.text.hjson.text import read_json
from dsgen.text.text import text_of
from tests.needs import needs_deepspeed

RELEASE = ".".join(map(str, NEWEST["deepspeed"]))
MUTANTS = 150
#: A finding whose edits leave the key as it is: what else is wrong with the config may be reported
#: afterwards.
OLD_RELEASE = "0.16.9"


def texts(count: int, release: str = RELEASE) -> list[tuple[str, str]]:
    """Real and rendered configs, as they are and for eight ranks, and damaged ones."""
    published = [*real_configs(), *rendered_configs()]
    bases = [(name, text) for name, text in published if is_json(text)]
    whole = [*published, *((f"{name} for {WORLD}", fitted(text)) for name, text in bases)]
    return [*whole, *mutants(bases, count, release, seed=11)]


@needs_deepspeed
@pytest.mark.integration
def test_verdicts_are_those_of_deepspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DeepSpeed's parser rejects we have an error for, and what we say it rejects it does
    reject.
    """
    from importlib.metadata import version

    if version("deepspeed") != RELEASE:
        pytest.skip(
            f"the verdicts are compared with DeepSpeed {RELEASE}; this is {version('deepspeed')}"
        )
    listed = texts(MUTANTS)
    monkeypatch.chdir(tmp_path)  # where no program is around a config
    answers = compare(listed, RELEASE, None)
    cells = Counter(answer.verdict for answer in answers)
    wrong = [
        (a.verdict, a.name, a.error, a.errors, a.text)
        for a in answers
        if a.verdict in ("missed", "false alarm")
    ]
    assert wrong == []
    assert min(cells["rejected by both"], cells["accepted by both"]) > MUTANTS / 2


@pytest.mark.parametrize("release", [RELEASE, OLD_RELEASE])
def test_edits_fix_what_they_are_for(release: str) -> None:
    """The edits of a finding leave a config that can be read, in which that rule reports nothing at
    that place.
    """
    fixed = Counter[str]()
    for name, text in texts(600, release):
        for finding in findings_of(text, release):
            if not finding.edits or fixed[finding.rule] > 20:
                continue
            fixed[finding.rule] += 1
            after = apply_edits(text, finding.edits)
            assert read_json(text_of(after, "ds_config.json")).broken is None, name
            assert key_of(finding) not in map(key_of, findings_of(after, release)), (
                name,
                finding,
                after,
            )
    assert len(fixed) > 8


def test_hostile_values_only_cause_findings() -> None:
    """Whatever the value of a key that the rules check, they answer with findings."""
    bases = [(name, text) for name, text in (*real_configs(), *rendered_configs()) if is_json(text)]
    for release in ("0.12.6", "0.14.5", OLD_RELEASE, "0.18.9", RELEASE):
        answers = [ask_dsgen(text, release) for _, text in mutants(bases, 200, release, seed=12)]
        assert any(answer["errors"] for answer in answers), release


def findings_of(text: str, release: str) -> tuple[Finding, ...]:
    """Every finding on a config that eight GPUs read."""
    config = DsConfig(json=read_json(text_of(text, "ds_config.json")))
    context = Context(
        gpus=WORLD, consumer="deepspeed", deepspeed_version=tuple(map(int, release.split(".")))
    )
    return check_submission(Submission(programs=PROGRAMS, documents=(config,), context=context))


def key_of(finding: Finding) -> tuple[str, str]:
    """What a finding is about, wherever in the text that is."""
    return finding.rule, finding.where.pointer
