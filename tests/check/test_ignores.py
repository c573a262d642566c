"""Comments that ignore findings, in every kind of text."""

from __future__ import annotations

import time

import pytest

from dsgen.check.ignores import comments, without_ignored
from dsgen.findings import Finding, Location, Severity
from dsgen.text.text import text_of


def told(path: str, content: str, *found: tuple[str, int | None]) -> list[tuple[str, int | None]]:
    """Rules and lines of what is told of a file in which rules find something at lines."""
    findings = [
        Finding(
            rule=rule,
            severity=Severity.ERROR,
            where=Location(path=path, line=line),
            message="wrong",
        )
        for rule, line in found
    ]
    left = without_ignored(findings, {path: text_of(content, path)})
    return [(finding.rule, finding.where.line) for finding in left]


@pytest.mark.parametrize(
    ("path", "content", "line"),
    [
        ("a.yaml", "x: 1\ny: 2  # dsgen: ignore[MDS002]\n", 2),
        ("a.yaml", "x: 1\n# dsgen: ignore[MDS002]\ny: 2\n", 3),
        ("a.yaml", "command: |\n  # dsgen: ignore[MDS002]\n  torchrun \\\n    train.py\n", 4),
        ("a.sh", "#!/bin/bash\n#SBATCH --mem=0  # dsgen: ignore[MDS002]\n", 2),
        ("a.sh", "# dsgen:ignore[MDS002]\ntorchrun \\\n  --nnodes 2 \\\n  train.py\n", 3),
        ("a.sh", "torchrun \\\n  --nnodes 2 \\\n  train.py # dsgen: ignore[MDS002]\n", 2),
        ("a.sh", "X=(a\n  # dsgen: ignore[MDS002]\n  b)\n", 3),
        ("a.sh", 'cat > ds.json <<E\n{\n  "a": 1 // dsgen: ignore[MDS002]\n}\nE\n', 3),
        ("a.json", '{\n  // dsgen: ignore[MDS002]\n  "a": 1\n}\n', 3),
        ("a.hjson", "a: 1 \nb: {} # dsgen: ignore[MDS002]\n", 2),
        ("a.json", '{\n  "a": 1 /* dsgen: ignore[MDS002] */\n}\n', 2),
        ("hostfile", "a slots=8 # dsgen: ignore[MDS002]\n", 1),
        ("a.sh", "# dsgen: ignore[MDS002]\r\n# dsgen: ignore[BATCH001]\r\nx\r\n", 3),
    ],
)
def test_a_comment_ignores_the_rule_at_its_line(path: str, content: str, line: int) -> None:
    """A comment at a line, or alone above it, ignores the rule that it names there, and no
    other.
    """
    left = told(
        path, content, ("MDS002", line), ("MLM004", line), ("MDS002", 40), ("BATCH001", line)
    )
    assert ("MDS002", line) not in left
    assert {("MLM004", line), ("MDS002", 40)} <= set(left)
    assert not {rule for rule, _ in left} & {"FILE007", "FILE008"}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            "a.json",
            '{\n  "a": "# dsgen: ignore[MDS002]", "b": "// dsgen: ignore-file[MDS002]"\n}\n',
        ),
        (
            "a.yaml",
            "x: 1\na: \"# dsgen: ignore[MDS002]\"\nb: ' # dsgen: ignore[MDS002]'\nc: x# "
            "dsgen: ignore[MDS002]\n",
        ),
        (
            "a.sh",
            "x\necho \"# dsgen: ignore[MDS002]\" '\n # dsgen: ignore-file[MDS002]\n' x# dsgen\n",
        ),
        ("a.sh", 'cat <<E\n{"a": "// dsgen: ignore-file[MDS002]"}\nE\n'),
    ],
)
def test_text_is_no_comment(path: str, content: str) -> None:
    """What looks like a comment within a text is none."""
    assert told(path, content, ("MDS002", 2)) == [("MDS002", 2)]


def test_a_file_can_be_ignored() -> None:
    """`ignore-file` ignores the rule at every line and at none, in its own file alone."""
    content = "x\n# dsgen: ignore-file[MDS002, MLM004]\n"
    assert told("a.sh", content, ("MDS002", 1), ("MDS002", None), ("MLM004", 9)) == []
    other = Finding(
        rule="MDS002", severity=Severity.ERROR, where=Location(path="b.sh", line=1), message="wrong"
    )
    assert other in without_ignored([other], {"a.sh": text_of(content, "a.sh")})


def test_a_useless_comment_draws_a_note() -> None:
    """A comment that ignores nothing is told, once for each rule that finds nothing there."""
    content = "x  # dsgen: ignore[MDS002, MLM004]\n"
    assert told("a.sh", content, ("MDS002", 1)) == [("FILE007", 1)]
    assert told("a.sh", "# dsgen: ignore-file[FILE007]\n" + content, ("MDS002", 2)) == []


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("ignore[BATCH0001]", "did you mean `BATCH001`"),
        ("ignore", "names no rule"),
        ("ignore[]", "names no rule"),
        ("ignore[a b]", "unknown rule"),
    ],
)
def test_an_unknown_rule_draws_a_warning(comment: str, said: str) -> None:
    """A comment that names no rule, or one that isn't there, is told with what may have been
    meant.
    """
    [found] = without_ignored([], {"a.sh": text_of(f"x # dsgen: {comment}\n", "a.sh")})
    assert (found.rule, found.severity) == ("FILE008", Severity.WARNING)
    assert said in f"{found.message} {found.hint}"
    assert (found.where.line, found.where.column) == (1, 5)


def test_comments_are_found_in_broken_texts() -> None:
    """Where a text can't be read on, comments before that place count, and nothing fails."""
    for path in ("a.json", "a.yaml", "a.sh", "a"):
        for content in (
            "{",
            "[[[",
            "'",
            '"# x',
            "<<E",
            "a: [ # x\n}",
            "\\",
            "# x",
            "(" * 300,
            "a: &a *a",
        ):
            assert all(content[start:end] for start, end in comments(text_of(content, path)))


def test_a_file_of_comments_alone_is_read_in_time() -> None:
    """Comments without end, ids without end and lines joined without end cost no more than a long
    file does.
    """
    for content in (
        "x \\\n" * 20_000 + "y # dsgen: ignore[MDS002]\n",
        "x # dsgen: ignore[MDS002] \\\n" * 20_000,
        "# dsgen: ignore[BATCH01]\n" * 20_000,
        f"# dsgen: ignore[{'X,' * 200_000}]\n",
        f"# dsgen: ignore[{'X' * 200_000}]\n",
    ):
        started = time.process_time()
        left = told("a.sh", content, *[("MDS002", line) for line in range(1, 2_000)])
        assert time.process_time() - started < 10
        assert len(left) < 2_300
