"""`dsgen validate --fix`: what it changes, that it comes to rest, that it is all or nothing; over
all cases.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.check.validate import Answer
from dsgen.cli.printing import ExitStatus
from dsgen.cli.writing import MAX_ROUNDS, FixedFile, fix_files, unified_diff, write_fixed
from dsgen.findings import Edit, Finding, Location, Severity
from dsgen.text.text import text_of
from dsgen.write import CannotWrite, Change, replace
from tests.case import NAMES, files_of, read_case
from tests.check.test_cases import findings_of, in_one_process, keywords_of
from tests.cli.running import run
from tests.needs import needs_deepspeed


def finding(*edits: tuple[str, int, int, str], rule: str = "ZERO001") -> Finding:
    """A finding that these edits fix."""
    return Finding(
        rule=rule,
        severity=Severity.ERROR,
        where=Location(path="a"),
        message="wrong",
        edits=tuple(
            Edit(path=path, start=start, end=end, replacement=text)
            for path, start, end, text in edits
        ),
    )


class Checks:
    """A check that finds in file `a` what its `rule` reports of the text, and counts how often it
    is asked.
    """

    def __init__(
        self, text: str, *edits: tuple[str, tuple[tuple[str, int, int, str], ...]]
    ) -> None:
        self.text, self.edits, self.asked = text, edits, 0

    def __call__(self, instead: Mapping[str, str]) -> Answer:
        """The findings whose text is the one in the file."""
        self.asked += 1
        now = instead.get("a", self.text)
        found = tuple(finding(edit) for text, edits in self.edits if text == now for edit in edits)
        return Answer(
            findings=found, documents=1, texts={"a": text_of(now, "a"), "b": text_of("b", "b")}
        )


def after(check: Checks) -> str:
    """What `a` holds when it is fixed."""
    files, _ = fix_files(check, lambda finding: True)
    return files[0].after if files else check.text


def test_edits_go_on_until_nothing_changes() -> None:
    """What one round fixes may let the next find more; the last answer is on what is left."""
    check = Checks("abc", ("abc", (("a", 0, 1, "x"),)), ("xbc", (("a", 1, 3, ""),)))
    assert after(check) == "x"
    assert check.asked == 3


def test_edits_that_overlap_wait_for_the_next_round() -> None:
    """Of two findings that would change the same characters the first goes first; the other is
    asked again.
    """
    check = Checks(
        "abc", ("abc", (("a", 0, 2, "xy"), ("a", 1, 3, "!!"))), ("xyc", (("a", 2, 3, "z"),))
    )
    assert after(check) == "xyz"


def test_edits_apart_are_made_in_one_round() -> None:
    """Edits at different places of a file are made together, wherever they stand."""
    check = Checks("a-b-c", ("a-b-c", (("a", 4, 5, "333"), ("a", 0, 1, "1"), ("a", 2, 3, "22"))))
    assert after(check) == "1-22-333"
    assert check.asked == 2


def test_edits_of_a_finding_are_made_together_or_not_at_all() -> None:
    """A finding of which one edit can't be made is left alone."""
    lost = finding(("a", 0, 1, "x"), ("absent", 0, 0, "x"))
    past = finding(("a", 0, 1, "y"), ("a", 2, 99, "y"))
    twice = finding(("a", 0, 2, "y"), ("a", 1, 3, "y"))

    def check(instead: Mapping[str, str]) -> Answer:
        return Answer(findings=(lost, past, twice), documents=1, texts={"a": text_of("abc", "a")})

    files, answer = fix_files(check, lambda finding: True)
    assert files == ()
    assert answer.findings == (lost, past, twice)


@pytest.mark.parametrize(
    ("before", "fixed"),
    [
        (
            '{"stage": 3, "overlap_comm": true}',
            '{"zero_optimization": {"stage": 3, "overlap_comm": true}}',
        ),
        (
            "{\n  stage: 3\n  overlap_comm: true\n}",
            '{\n  "zero_optimization": {"stage": 3, "overlap_comm": true}\n}',
        ),
        ('{"zero_optimisation": {"stage": 3}, "overlap_comm": true}', ""),
    ],
)
def test_findings_that_add_the_same_section_are_fixed_one_after_the_other(
    before: str, fixed: str, tmp_path: Path
) -> None:
    """Keys outside of a section that is missing go into one section, and to none beside one whose
    name has a slip.
    """
    config = tmp_path / "ds_config.json"
    config.write_text(before)
    run("validate", "--fix", str(config))
    assert config.read_text() == (fixed or before)


def test_a_file_that_is_read_later_is_fixed_too() -> None:
    """A file that could not be read at first, or came to the folder meanwhile, is no traceback."""
    early, late = finding(("a", 0, 1, "x")), finding(("b", 0, 1, "y"))

    def check(instead: Mapping[str, str]) -> Answer:
        texts = {"a": text_of(instead.get("a", "a"), "a")}
        if instead:
            texts["b"] = text_of(instead.get("b", "b"), "b")
        found = () if "b" in instead else (late,) if instead else (early,)
        return Answer(findings=found, documents=1, texts=texts)

    files, _ = fix_files(check, lambda finding: True)
    assert [(file.path, file.before, file.after) for file in files] == [
        ("a", "a", "x"),
        ("b", "b", "y"),
    ]


def test_edits_that_undo_each_other_come_to_rest() -> None:
    """Two rules that each fix what the other breaks don't go round for ever."""
    check = Checks("a", ("a", (("a", 0, 1, "b"),)), ("b", (("a", 0, 1, "a"),)))
    assert after(check) in ("a", "b")
    assert check.asked <= 3


def test_rounds_are_limited() -> None:
    """A rule that always finds more is asked so many times and no more."""
    asked = 0

    def check(instead: Mapping[str, str]) -> Answer:
        nonlocal asked
        asked += 1
        text = instead.get("a", "a")
        return Answer(
            findings=(finding(("a", len(text), len(text), "a")),),
            documents=1,
            texts={"a": text_of(text, "a")},
        )

    fix_files(check, lambda finding: True)
    assert asked == MAX_ROUNDS + 1


def test_only_what_is_selected_is_fixed() -> None:
    """A finding that isn't reported is not fixed either."""
    files, _ = fix_files(Checks("abc", ("abc", (("a", 0, 1, "x"),))), lambda finding: False)
    assert files == ()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a byte order mark, Windows line ends and permissions of its own, behind a
    link.
    """
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "real" / "run.sh"
    place.parent.mkdir()
    place.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    place.chmod(0o710)
    (tmp_path / "run.sh").symlink_to(place)
    (tmp_path / "other").write_text("x\n")
    return place


FIXED = (
    FixedFile(path="run.sh", before="one\r\ntwo", after="one\r\n2"),
    FixedFile(path="other", before="x\n", after="y\n"),
)


def test_files_keep_what_is_not_fixed(script: Path) -> None:
    """Line ends, byte order mark, permissions and links stay as they are; nothing else is left in
    the folder.
    """
    write_fixed(FIXED)
    assert script.read_bytes() == b"\xef\xbb\xbfone\r\n2"
    assert stat.S_IMODE(script.stat().st_mode) == 0o710
    assert Path("run.sh").is_symlink()
    assert Path("other").read_text() == "y\n"
    assert {path.name for path in Path().rglob("*")} == {"other", "real", "run.sh"}


def test_a_file_that_changed_meanwhile_is_not_overwritten(script: Path) -> None:
    """When a file is no longer what was checked, nothing is written at all."""
    Path("other").write_text("changed\n")
    with pytest.raises(CannotWrite):
        write_fixed(FIXED)
    assert script.read_bytes().endswith(b"two")


def test_a_read_only_file_is_refused(script: Path) -> None:
    """A file that nobody may write is named with what to do, and nothing is written at all, not
    even by root.
    """
    script.chmod(0o444)
    with pytest.raises(CannotWrite, match="it is read-only") as refused:
        write_fixed(FIXED)
    assert refused.value.hint == "chmod u+w run.sh, or fix a copy"
    assert Path("other").read_text() == "x\n"


def test_a_file_with_hard_links_is_refused(script: Path) -> None:
    """A file with a second name stays one file: it is named, and nothing is written at all."""
    os.link(script, "second")
    with pytest.raises(CannotWrite, match="it has 2 hard links"):
        write_fixed(FIXED)
    assert script.samefile("second")
    assert Path("other").read_text() == "x\n"


@pytest.mark.parametrize("save", ["in place", "by a rename"])
def test_an_edit_between_check_and_exchange_is_kept(
    save: str, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an editor writes after the last look is in the file, and no other file is changed."""

    def edit(changes: Sequence[Change], folder: Path, **options: Any) -> None:
        new = script if save == "in place" else script.with_name("new")
        new.write_text("edited\n")
        new.replace(script)
        replace(changes, folder, **options)

    monkeypatch.setattr("dsgen.write.replace", edit)
    with pytest.raises(CannotWrite, match="another program changed it meanwhile"):
        write_fixed(FIXED)
    assert script.read_text() == "edited\n"
    assert Path("other").read_text() == "x\n"
    assert {path.name for path in Path().rglob("*")} == {"other", "real", "run.sh"}


def test_the_diff_is_one_that_patch_takes() -> None:
    """The diff names the files and marks a last line without an end."""
    assert unified_diff(FIXED[1:]) == "--- other\n+++ other\n@@ -1 +1 @@\n-x\n+y\n"
    assert unified_diff(FIXED[:1]).count("\\ No newline at end of file\n") == 2


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The bad submission of the case that the test is for, as the working directory."""
    read_case(request.getfixturevalue("name")).write("bad", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_fixing_comes_to_rest_and_breaks_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `--fix` the same command changes nothing more, and no rule finds an error that it
    didn't find before.
    """
    case = read_case(name)
    found_before = findings_of(case, "bad", tmp_path, monkeypatch)
    if not any(found.edits for found in found_before):
        return
    flags, bad, before = case.flags, tmp_path, case.bad
    errors = {found.rule for found in found_before if found.severity is Severity.ERROR}
    shown = run("validate", ".", "--fix", "--diff", *flags)
    assert files_of(bad) == before
    first = run("validate", ".", "--fix", *flags)
    assert first.stdout == shown.stdout
    fixed = files_of(bad)
    assert fixed.keys() == before.keys()
    assert fixed != before
    again = run("validate", ".", "--fix", "--format", "json", *flags)
    assert files_of(bad) == fixed
    assert "@@" not in again.stderr
    left = json.loads(again.stdout)["findings"]
    assert {found["rule"] for found in left if found["severity"] == "error"} <= errors
    assert not [found for found in left if found["fixable"]], "what can be fixed is fixed"


@needs_deepspeed
@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_deepspeed_takes_what_is_fixed(name: str, bad: Path) -> None:
    """A config in which `--fix` left no error is one that DeepSpeed's own parser takes, of its
    newest version.
    """
    flags = list(read_case(name).flags)
    if not any(found.edits for found in dsgen.validate(".", **keywords_of(read_case(name).flags))):
        return
    if "--deepspeed-version" in flags:
        flags = [word for word in flags if not word[0].isdigit() or "." not in word]
        flags.remove("--deepspeed-version")
    run("validate", ".", "--fix", *flags)
    refused = [
        found
        for found in dsgen.validate(".", engine=True, **keywords_of(flags))
        if found.rule == "ENG001"
    ]
    assert refused == []


def test_the_diff_alone_writes_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--fix` on files with nothing to fix writes nothing, and its status is that of what is
    left.
    """
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("framework: megatron-lm\nmodel: llama-3-70b\ncolour: blue\n")
    before = files_of(tmp_path)
    for words in ("--fix", "--fix --diff"):
        assert run("validate", ".", *shlex.split(words)).exit_code == ExitStatus.FINDINGS
    assert files_of(tmp_path) == before


def test_a_batch_that_the_processes_decide_is_left_alone(tmp_path: Path) -> None:
    """Whether train_batch_size or the number of processes is wrong isn't known, so --fix changes
    neither.
    """
    read_case("HF039").write("bad", tmp_path)
    before = (tmp_path / "ds_config.json").read_text()
    run("validate", "--fix", str(tmp_path), "--gpus", "8")
    assert (tmp_path / "ds_config.json").read_text() == before
