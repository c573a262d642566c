"""`benchmarks.wild`: findings on public repositories, matched with what was judged of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks import wild
from benchmarks.wild import Row, Said

TABLE = Path(wild.__file__).parent / "data" / "wild_verdicts.csv"


def row(
    rule: str = "SLM003", verdict: str = "TRUE", path: str = "a.sh", lines: tuple[int, ...] = ()
) -> Row:
    """A verdict."""
    return Row(
        repo="o/n",
        commit="c0",
        path=path,
        rule=rule,
        lines=frozenset(lines),
        verdict=verdict,
        why="",
    )


def said(
    rule: str = "SLM003", line: int | None = 4, path: str = "a.sh", severity: str = "warning"
) -> Said:
    """A finding."""
    return Said(repo="o/n", path=path, rule=rule, line=line, severity=severity, message="wrong")


def verdicts(findings: list[Said], rows: list[Row]) -> list[str]:
    """The verdicts on the findings."""
    return [
        found.verdict if found else "" for _, found in wild.match(findings, rows, {"o/n"}).judged
    ]


def test_the_carried_table_is_well_formed() -> None:
    """Every row has a known verdict, a commit and, unless it is clean, a rule; no two rows judge
    one finding.
    """
    rows = wild.read_table(TABLE)
    assert {row.verdict for row in rows} == set(wild.VERDICTS)
    assert all(row.commit and row.path for row in rows)
    assert all(bool(row.rule) == (row.verdict != "clean") for row in rows)
    seen = [(*row.key, line) for row in rows for line in row.lines or [0]]
    assert len(seen) == len(set(seen))
    assert sum(max(1, len(row.lines)) for row in rows) >= 3_400


def test_a_verdict_holds_for_its_rule_file_and_lines() -> None:
    """Another line, rule or file is not judged; a verdict or a finding without lines is one on the
    whole file.
    """
    rows = [row(lines=(4, 9)), row("ENV004", "FALSE")]
    assert verdicts([said(), said(line=9), said(line=None)], rows) == ["TRUE"] * 3
    assert verdicts([said(line=5), said(path="b.sh"), said("SLM001")], rows) == [""] * 3
    assert verdicts([said("ENV004", line=77)], rows) == ["FALSE"]


def test_the_line_decides_between_verdicts_on_one_file() -> None:
    """Where a file has a true and a false finding of one rule; a finding on the whole file is then
    unjudged.
    """
    rows = [row(lines=(4,)), row(verdict="FALSE", lines=(5,))]
    assert verdicts([said(line=5), said(line=4), said(line=None)], rows) == ["FALSE", "TRUE", ""]


def test_what_was_true_must_be_said_still() -> None:
    """A row judged TRUE is lost when no finding answers to it; rows of repositories that weren't
    checked are not.
    """
    rows = [row(), row("ENV004"), row("OPT003", "FALSE")]
    assert [lost.rule for lost in wild.match([said()], rows, {"o/n"}).lost] == ["ENV004"]
    assert not wild.match([], rows, {"o/other"}).lost
    assert wild.below(wild.match([said()], rows, {"o/n"}), 2) == [
        "still said: 50.0% of 2 that were judged TRUE, the aim is 95%"
    ]


def test_precision_counts_what_was_judged() -> None:
    """Unjudged findings are left out, nitpicks are not TRUE; each severity has its aim."""
    rows = [row(lines=(1, 2, 3)), row("OPT003", "FALSE"), row("ENV001", "NITPICK")]
    findings = [
        said(line=1),
        said(line=2),
        said(line=3),
        said("OPT003"),
        said("ENV001"),
        said("MLM001"),
    ]
    found = wild.match(findings, rows, {"o/n"})
    assert found.count(severity="warning") == {
        "TRUE": 3,
        "FALSE": 1,
        "NITPICK": 1,
        wild.UNJUDGED: 1,
    }
    assert wild.precision(found.count()) == 0.6
    assert wild.precision({wild.UNJUDGED: 3}) is None
    assert wild.below(found, 1) == ["warnings: 60.0% TRUE, the aim is 85%"]


def test_unjudged_findings_come_back_as_verdicts(tmp_path: Path) -> None:
    """They are written with what was judged beside them; those that get a verdict join the table,
    comments kept.
    """
    table, unjudged = tmp_path / "table.csv", tmp_path / "unjudged.csv"
    table.write_text("# source\n", encoding="utf-8")
    rows = [row(lines=(4,)), row("", "clean", path="b.sh")]
    wild.write_table(table, rows)
    findings = [said(), said(line=9), said("ENV004", line=None, path="b.sh")]
    wild.write_unjudged(unjudged, wild.match(findings, rows, {"o/n"}), rows)
    assert wild.read_table(unjudged) == []
    text = unjudged.read_text(encoding="utf-8").splitlines()
    assert text[1:] == [
        "o/n@c0,a.sh,SLM003,9,,,warning,wrong,TRUE",
        "o/n@c0,b.sh,ENV004,,,,warning,wrong,clean",
    ]
    unjudged.write_text(
        "\n".join([text[0], text[1].replace(",,,w", ",TRUE,,w"), text[2]]), encoding="utf-8"
    )
    wild.write_table(table, [*wild.read_table(table), *wild.read_table(unjudged)])
    assert table.read_text(encoding="utf-8").startswith("# source\nrepo,path,")
    assert set(wild.read_table(table)) == {row(lines=(4, 9)), row("", "clean", path="b.sh")}


def test_a_checkout_is_checked_as_a_user_would(tmp_path: Path) -> None:
    """Paths are those of the repository, notes are left out, and nothing in the folder is
    imported.
    """
    folder = tmp_path / "o+n"
    (folder / "jobs").mkdir(parents=True)
    (folder / "yaml.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    config = '{"train_batch_size": 8, "gradient_clipping": 1.0, "zero_optimization": 7}'
    (folder / "jobs" / "ds_config.json").write_text(config, encoding="utf-8")
    (folder / "train.py").write_text('CONFIG = "jobs/ds_config.json"\n', encoding="utf-8")
    answer = wild.check(folder)
    assert (answer.repo, answer.problem) == ("o/n", "")
    assert {found.path for found in answer.said} == {"jobs/ds_config.json"}
    assert {found.severity for found in answer.said} <= set(wild.AIMS)
