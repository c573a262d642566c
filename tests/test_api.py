"""The public API: what `import dsgen` offers, and that it goes on offering it once its parts are
imported.
"""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dsgen
from tests import jobs as some

SPEC = """\
framework: deepspeed
model: gpt2
cluster: azure/standard_nd96amsr_a100_v4
gpus: 8
training: {sequence_length: 1024, global_batch: 64}
launch: {script: train.py}
"""


def test_every_public_name_is_there() -> None:
    """Each name of `__all__` can be had, and an unknown one is an AttributeError."""
    for name in dsgen.__all__:
        assert getattr(dsgen, name)
    with pytest.raises(AttributeError, match="nothing"):
        _ = dsgen.nothing


def test_functions_are_not_replaced_by_modules() -> None:
    """`dsgen.search`, `dsgen.estimate` and `dsgen.render` stay functions after the subpackages are
    imported.
    """
    code = (
        "import dsgen, dsgen.search.plan, dsgen.estimate.layout, dsgen.render\nfrom "
        "dsgen.search.plan import Plan\n"
    )
    check = "assert all(map(callable, (dsgen.search, dsgen.estimate, dsgen.render)))"
    assert subprocess.run([sys.executable, "-c", code + check], check=False).returncode == 0


def test_from_spec_to_files(tmp_path: Path) -> None:
    """A path, a stream and a mapping give the same job; it is searched and rendered, and nothing is
    written.
    """
    (tmp_path / "job.yaml").write_text(SPEC)
    jobs = (
        dsgen.load_job(tmp_path / "job.yaml", overrides={"gpus": 16}),
        dsgen.load_job(io.StringIO(SPEC), overrides={"gpus": 16}),
    )
    for job in jobs:
        answer = dsgen.search(job, top=2)
        assert isinstance(answer, dsgen.SearchResult)
        assert answer.plans[0].layout.world == 16
        names = {file.path for file in dsgen.render(answer.plans[0])}
        assert {"ds_config.json", "plan.json"} <= names
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_invalid_job_holds_every_finding() -> None:
    """A bad spec raises InvalidJob with all its findings, those of rules included."""
    with pytest.raises(dsgen.InvalidJob) as caught:
        dsgen.check_job(io.StringIO(SPEC.replace("gpus: 8", "gpus: 8\nlayout: {tensor: 5}")))
    assert any("5" in finding.message for finding in caught.value.findings)


def test_a_pin_that_breaks_a_rule_is_estimated_and_has_no_plan() -> None:
    """`estimate` shows the rule that a pinned key breaks, `search` names it as what binds; neither
    raises.
    """
    job = dsgen.load_job(io.StringIO(SPEC.replace("gpus: 8", "gpus: 8\nlayout: {tensor: 5}")))
    broken = {finding.rule for finding in dsgen.estimate(job).findings}
    answer = dsgen.search(job)
    assert isinstance(answer, dsgen.Infeasible)
    assert answer.binding_rule in broken
    assert any(suggestion.path == "layout.tensor" for suggestion in answer.suggestions)


def test_estimate_gives_one_plan() -> None:
    """`estimate` answers with a plan of the pinned layout, whatever it breaks."""
    plan = dsgen.estimate(dsgen.load_job(io.StringIO(SPEC), overrides={"layout.micro_batch": 2}))
    assert plan.layout.micro_batch == 2


def test_validate_reads_many_files(tmp_path: Path) -> None:
    """`validate` gathers the findings of all paths in file order."""
    (tmp_path / "a.yaml").write_text(SPEC.replace("gpt2", "gpt-too"))
    (tmp_path / "b.yaml").write_text(SPEC)
    (tmp_path / "c.yaml").write_text("")
    paths = [finding.where.path for finding in dsgen.validate(*sorted(tmp_path.iterdir()))]
    assert paths == sorted(paths)
    assert {Path(path).name for path in paths} == {"a.yaml", "c.yaml"}


def test_what_is_no_job_is_told_how_to_become_one() -> None:
    """`search` and `estimate` of a path say by which call it becomes a job."""
    for called in (dsgen.search, dsgen.estimate):
        with pytest.raises(TypeError, match=r"load_job\('job.yaml'\)"):
            called("job.yaml")  # type: ignore[arg-type]


def test_answers_and_plans_are_a_line_each() -> None:
    """The text of an answer, and of a plan, is one line with the layout in words."""
    answer = dsgen.search(some.job(), top=3)
    assert isinstance(answer, dsgen.SearchResult)
    for text in (repr(answer), repr(answer.plans[0])):
        assert len(text) < 300
        assert f"{answer.plans[0].layout.data} replicas" in text


def test_answers_are_tables_in_notebooks() -> None:
    """An answer shows as a table with a row for each plan, and nothing of a job's name is HTML."""
    answer = dsgen.search(replace(some.job(), name="<b>&"), top=3)
    assert isinstance(answer, dsgen.SearchResult)
    shown = answer._repr_html_()
    assert shown.count("<tr>") == 1 + len(answer.in_rows(3))
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown
    assert answer.plans[0]._repr_html_().count("<tr>") == 2


def test_an_answer_becomes_a_data_frame() -> None:
    """A DataFrame has a row for each plan and the estimates by the names of `plan.json`."""
    pandas = pytest.importorskip("pandas")
    answer = dsgen.search(some.job(), top=3)
    assert isinstance(answer, dsgen.SearchResult)
    table = answer.to_dataframe()
    assert isinstance(table, pandas.DataFrame)
    assert [*table["rank"]] == [1, 2, 3]
    assert [*table["total_s"]] == [float(plan.step_time.total_s) for plan in answer.plans]
    assert [*table["data"]] == [plan.layout.data for plan in answer.plans]


def test_without_pandas_the_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pandas can't be imported, the error names what gives the same without it."""
    answer = dsgen.search(some.job(), top=2)
    assert isinstance(answer, dsgen.SearchResult)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_rows\(\)"):
        answer.to_dataframe()
    assert [row["rank"] for row in answer.to_rows()] == [1, 2]


def test_flat_rows_have_the_numbers_of_tables() -> None:
    """A flat row says which row of the table it is, by the word that `--compare` takes."""
    answer = dsgen.search(some.job(), top=6)
    assert isinstance(answer, dsgen.SearchResult)
    tables = answer.in_rows(6)
    for row, plan in zip(answer.to_rows(), answer.plans, strict=True):
        assert tables[row["row"]].layout == plan.layout
    assert [row["row"] for row in answer.to_rows()] != [*map(str, range(1, 7))]


def test_no_place_is_none() -> None:
    """Where a finding has no line, its text has the pointer of the value."""
    with pytest.raises(dsgen.InvalidJob) as raised:
        dsgen.load_job(
            {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 8, "training": {"a": 1}}
        )
    said = str(raised.value)
    assert "None" not in said and "<mapping>:/training/a: unknown key 'a'" in said
