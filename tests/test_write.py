"""Writing is all or nothing, and never surprises."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from dsgen import write as writing
from dsgen.cli.writing import print_diff, write_files
from dsgen.programs.program import RenderedFile, content_hash
from dsgen.write import (
    Action,
    CannotWrite,
    Change,
    WouldOverwrite,
    compare,
    compare_sets,
    diff,
    held,
    leftovers,
    put,
    recover,
    write,
)

FILES = (
    RenderedFile(path="a.txt", text="one\ntwo\n"),
    RenderedFile(path="deep/er/b.sh", text="#!/bin/bash\n", executable=True),
    RenderedFile(path="é.json", text="☃"),
)


def tree(folder: Path) -> dict[str, tuple[bytes | str, int]]:
    """Everything under `folder`: contents, or what a link points to, and mode."""
    return {
        str(path.relative_to(folder)): (
            str(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b"",
            path.lstat().st_mode,
        )
        for path in sorted(folder.rglob("*"))
    }


def actions(changes: tuple[Change, ...]) -> list[str]:
    """The changes' actions, in order."""
    return [change.action.value for change in changes]


def test_files_are_created_with_folders_and_modes(tmp_path: Path) -> None:
    """Writing into a folder that isn't there makes it, with the bytes and the executable bits asked
    for.
    """
    changes = write(FILES, tmp_path / "out" / "put")
    assert actions(changes) == ["create"] * 3
    assert (tmp_path / "out/put/é.json").read_bytes() == "☃".encode()
    assert [os.access(change.path, os.X_OK) for change in changes] == [False, True, False]
    assert not list(tmp_path.rglob(".dsgen-*"))


def test_writing_twice_changes_nothing(tmp_path: Path) -> None:
    """Files that are already there as they should be are left alone, without force."""
    write(FILES, tmp_path)
    before = tree(tmp_path)
    assert actions(write(FILES, tmp_path)) == ["identical"] * 3
    assert tree(tmp_path) == before


def test_comparing_writes_nothing(tmp_path: Path) -> None:
    """Comparing leaves no trace, not even the folder."""
    assert actions(compare(FILES, tmp_path / "out")) == ["create"] * 3
    assert not (tmp_path / "out").exists()


def test_a_conflict_needs_force(tmp_path: Path) -> None:
    """A file with other bytes or another mode stops everything, and every conflict is named."""
    write(FILES, tmp_path)
    (tmp_path / "a.txt").write_text("mine\n")
    (tmp_path / "deep/er/b.sh").chmod(0o644)
    (tmp_path / "é.json").unlink()
    before = tree(tmp_path)
    with pytest.raises(WouldOverwrite) as stopped:
        write(FILES, tmp_path)
    assert [change.file.path for change in stopped.value.changes] == ["a.txt", "deep/er/b.sh"]
    assert tree(tmp_path) == before


def test_force_overwrites(tmp_path: Path) -> None:
    """With force, conflicts are replaced and nothing of the old files stays behind."""
    (tmp_path / "a.txt").write_text("mine\n")
    assert actions(write(FILES, tmp_path, force=True)) == ["conflict", "create", "create"]
    assert actions(compare(FILES, tmp_path)) == ["identical"] * 3
    assert not list(tmp_path.rglob(".dsgen-*"))


def test_a_failure_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    """A set that no folder can hold is refused by name, and nothing of it is there."""
    (tmp_path / "a.txt").write_text("mine\n")
    (tmp_path / "a.txt").chmod(0o640)
    before = tree(tmp_path)
    impossible = (RenderedFile(path="x", text="file"), RenderedFile(path="x/y", text="and folder"))
    with pytest.raises(CannotWrite) as stopped:
        write((*FILES, *impossible), tmp_path, force=True)
    assert stopped.value.path == tmp_path / "x"
    assert "as in a folder" in stopped.value.reason
    assert tree(tmp_path) == before


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    """A file where a folder is needed is refused, and nothing is written."""
    (tmp_path / "deep").write_text("a file")
    before = tree(tmp_path)
    with pytest.raises(CannotWrite):
        write(FILES, tmp_path)
    assert tree(tmp_path) == before


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """An output folder that is a file is refused by name."""
    (tmp_path / "out").write_text("")
    with pytest.raises(CannotWrite, match="it is not a folder") as stopped:
        write(FILES, tmp_path / "out")
    assert stopped.value.path == tmp_path / "out"


def test_a_folder_that_leads_nowhere(tmp_path: Path) -> None:
    """An output folder that is a broken link, or under a file, is refused by the name of what is in
    the way.
    """
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    before = tree(tmp_path)
    with pytest.raises(CannotWrite, match="a symbolic link that leads to no folder"):
        write(FILES, tmp_path / "link")
    with pytest.raises(CannotWrite, match="it is not a folder") as stopped:
        write(FILES, tmp_path / "file" / "out")
    assert stopped.value.path == tmp_path / "file"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", ["a.txt", "", "."])
def test_a_folder_in_the_way_of_a_file(tmp_path: Path, path: str) -> None:
    """A folder where a file should go is refused as one, force or not."""
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(CannotWrite, match="it is a folder"):
        write((RenderedFile(path=path, text=""),), tmp_path, force=True)


@pytest.mark.parametrize("path", ["../x", "/etc/dsgen", "a/../../x", "a/.."])
def test_paths_out_of_the_folder_are_refused(tmp_path: Path, path: str) -> None:
    """No rendered path leads out of the output folder."""
    with pytest.raises(CannotWrite, match="leads out of the folder"):
        write((RenderedFile(path=path, text=""),), tmp_path / "out")


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    """A symbolic link that points to itself is an answer, not a crash."""
    (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(CannotWrite):
        write((*FILES, RenderedFile(path="a.txt/x", text="")), tmp_path)


def test_a_folder_name_too_long_is_refused(tmp_path: Path) -> None:
    """The output folder's own name can be what the file system refuses."""
    with pytest.raises(CannotWrite, match="File name too long") as refused:
        write(FILES, tmp_path / ("x" * 300))
    assert refused.value.hint == "choose a shorter name"


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free space there"), (errno.EDQUOT, "quota"), (errno.EACCES, None)],
)
def test_a_refusal_comes_with_what_helps_against_it(
    number: int, hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or quota isn't met by another folder's rights; of rights each command has its
    own hint.
    """

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(CannotWrite, match=os.strerror(number)) as refused:
        write(FILES, tmp_path)
    assert (hint or "") in (refused.value.hint or "")
    assert (hint is None) is (refused.value.hint is None)


@pytest.mark.parametrize("link", ["a.txt", "deep"])
def test_links_out_of_the_folder_are_refused(tmp_path: Path, link: str) -> None:
    """A symbolic link in the output folder can't make us write elsewhere."""
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotWrite, match="a symbolic link leads out of the folder"):
        write(FILES, tmp_path / "out", force=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    """A lone surrogate can't be written, and says so instead of failing half way."""
    with pytest.raises(CannotWrite, match="not valid Unicode"):
        write((*FILES, RenderedFile(path="bad", text="\ud800")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    """The file system's own refusal comes with the path."""
    with pytest.raises(CannotWrite, match="File name too long"):
        write((RenderedFile(path="x" * 300, text=""),), tmp_path)


def test_the_diff_shows_old_and_new(tmp_path: Path) -> None:
    """A conflict is shown as a unified diff from what is there to what would be."""
    (tmp_path / "a.txt").write_text("one\nthree\n")
    path = tmp_path / "a.txt"
    assert (
        diff(compare(FILES[:1], tmp_path))
        == f"--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n one\n-three\n+two\n"
    )


def test_the_diff_names_new_files_and_modes(tmp_path: Path) -> None:
    """A new file comes from /dev/null, a mode has one line, an identical file none."""
    write(FILES[:2], tmp_path)
    (tmp_path / "deep/er/b.sh").chmod(0o644)
    text = diff(compare(FILES, tmp_path))
    assert text.splitlines() == [
        f"{tmp_path}/deep/er/b.sh: executable bit on",
        "--- /dev/null",
        f"+++ {tmp_path}/é.json",
        "@@ -0,0 +1 @@",
        "+☃",
        "\\ No newline at end of file",
    ]


def test_actions_have_names() -> None:
    """The actions read as words."""
    assert [action.value for action in Action] == [
        "create",
        "identical",
        "conflict",
        "remove",
        "keep",
    ]


@pytest.fixture
def leftover(tmp_path: Path) -> Path:
    """What a run leaves that was killed before it changed anything."""
    staged = tmp_path / ".dsgen-writing" / "new" / "0"
    staged.parent.mkdir(parents=True)
    staged.write_text("half a fi")
    return staged.parent.parent


def test_what_is_left_over_is_named_and_removed(tmp_path: Path, leftover: Path) -> None:
    """The next run says in one line what it found and what became of it; comparing only names
    it.
    """
    assert leftovers(tmp_path) == [leftover]
    told: list[str] = []
    write(FILES, tmp_path, tell=told.append)
    assert told == [f"{leftover}: note: an interrupted run left this. The files are whole"]
    assert not leftover.exists()


def test_commands_say_what_is_left_over(
    tmp_path: Path, leftover: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, `--diff` says that the next run will see to it, and that run that it
    did.
    """
    print_diff(FILES, tmp_path)
    assert (
        f"{leftover}: note: an interrupted run left this; the next run that writes"
        in capsys.readouterr().err
    )
    write_files(FILES, tmp_path, force=False, hint="")
    assert capsys.readouterr().err.count("an interrupted run left this") == 1


def test_what_was_moved_aside_is_put_back(tmp_path: Path, leftover: Path) -> None:
    """After a kill within the renames the next run puts back what is missing, and says that the set
    may be in part.
    """
    (leftover / "renaming").touch()
    (leftover / "old" / "deep").mkdir(parents=True)
    (leftover / "old" / "deep" / "mine.txt").write_text("mine")
    (leftover / "old" / "a.txt").write_text("replaced")
    (tmp_path / "a.txt").write_text("new")
    told: list[str] = []
    assert recover(tmp_path, told.append)
    assert told == [
        f"{leftover}: note: an interrupted run left this. A part of its files may be in place: "
        "run that command again"
    ]
    assert (tmp_path / "deep" / "mine.txt").read_text() == "mine"
    assert (tmp_path / "a.txt").read_text() == "new"
    assert not leftover.exists()


@pytest.mark.parametrize("whole", [False, True])
def test_the_mark_of_a_set_comes_back_with_the_whole_set(
    tmp_path: Path, leftover: Path, whole: bool
) -> None:
    """The plan.json that was moved aside is put back where every other file is, and not beside a
    part of a new set.
    """
    (leftover / "renaming").touch()
    (leftover / "old").mkdir()
    for name in ("plan.json", "z.txt"):
        (leftover / "old" / name).write_text("old")
    if not whole:
        (tmp_path / "z.txt").write_text("new")
    recover(tmp_path, print)
    assert (tmp_path / "plan.json").exists() == whole


def test_a_leftover_leads_nowhere_else(tmp_path: Path) -> None:
    """A working folder that came with somebody else's folder puts, removes and moves nothing
    outside of that.
    """
    folder, victim = tmp_path / "cloned", tmp_path / "victim"
    work = folder / ".dsgen-writing"
    (work / "old" / "link").mkdir(parents=True)
    (work / "renaming").touch()
    (work / "old" / "link" / "file").write_text("theirs")
    victim.mkdir()
    (victim / "kept").write_text("mine")
    (folder / "link").symlink_to("../victim")
    (work / "new").symlink_to("../../victim")
    write(FILES, folder)
    assert [path.name for path in victim.iterdir()] == ["kept"]


def test_others_files_in_a_working_folder_stay(tmp_path: Path, leftover: Path) -> None:
    """What is not dsgen's in a folder of that name is kept, and named."""
    (leftover / "notes").write_text("mine")
    told: list[str] = []
    write(FILES, tmp_path, tell=told.append)
    assert (leftover / "notes").read_text() == "mine"
    assert any("cannot be removed" in line for line in told)


def test_a_file_in_the_way_of_the_working_folder_is_named(tmp_path: Path) -> None:
    """A file with the name of our working folder is kept, and the message does not speak of another
    user.
    """
    (tmp_path / ".dsgen-writing").write_text("mine")
    with pytest.raises(CannotWrite, match="it is none") as problem:
        write(FILES, tmp_path)
    assert problem.value.hint == "move it away"
    assert (tmp_path / ".dsgen-writing").read_text() == "mine"


def test_runs_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits for another that has the lock, and says so when it waits too long."""
    monkeypatch.setattr(writing, "PATIENCE_S", 0.1)
    with writing._working(tmp_path, print), pytest.raises(CannotWrite, match="another dsgen"):
        write(FILES, tmp_path)
    assert actions(write(FILES, tmp_path)) == ["create"] * 3


def test_without_locks_files_are_written_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that has no locks is no reason to refuse, but one to warn."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    told: list[str] = []
    write(FILES, tmp_path / "out", tell=told.append)
    assert told == [
        f"{tmp_path}/out: warning: files can't be locked here (No locks available): let no two "
        "runs write here at once"
    ]
    assert actions(compare(FILES, tmp_path / "out")) == ["identical"] * 3


def test_without_hard_links_nothing_is_overwritten_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system has no hard links, files are moved to places that are free, and replaced
    with force.
    """

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("os.link", refuse)
    (tmp_path / "a.txt").write_text("mine\n")
    assert actions(write(FILES, tmp_path, force=True)) == ["conflict", "create", "create"]
    assert not list(tmp_path.rglob(".dsgen-*"))
    (tmp_path / "new").write_text("mine\n")
    with pytest.raises(FileExistsError):
        put(tmp_path / "a.txt", tmp_path / "new")


def test_signals_wait() -> None:
    """SIGINT and its like come when the block is over, and do what they did before."""
    done = []
    # a job in the background ignores it
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), held():
            signal.raise_signal(signal.SIGINT)
            done.append("the block goes on")
    finally:
        signal.signal(signal.SIGINT, former)
    assert done


@pytest.mark.parametrize("force", [False, True])
def test_a_link_that_leads_nowhere_is_in_the_way(force: bool, tmp_path: Path) -> None:
    """A dangling link in a file's place is overwritten only with force, and what it leads to is not
    made.
    """
    (tmp_path / "a.txt").symlink_to("nowhere")
    if force:
        write(FILES, tmp_path, force=True)
    else:
        with pytest.raises(WouldOverwrite):
            write(FILES, tmp_path)
    assert (tmp_path / "a.txt").is_symlink() != force
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_in_the_way_is_refused(tmp_path: Path) -> None:
    """A FIFO in a file's place is no file to read, and nobody waits for its writer."""
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(CannotWrite, match="it is not a regular file"):
        write(FILES, tmp_path, force=True)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
def test_the_owner_stays(tmp_path: Path) -> None:
    """A file that is replaced keeps owner and group where that is allowed."""
    (tmp_path / "a.txt").write_text("mine\n")
    os.chown(tmp_path / "a.txt", 1234, 4321)
    write(FILES, tmp_path, force=True)
    status = (tmp_path / "a.txt").stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)


def test_a_file_that_goes_while_it_is_compared_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another run takes away between two looks at it counts as a file to create, not as a
    failure.
    """
    file = RenderedFile(path="plan.json", text="{}")
    (tmp_path / "plan.json").write_text("old")

    def gone(path: Path) -> bytes:
        path.unlink()
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "read_bytes", gone)
    (change,) = compare([file], tmp_path)
    assert change.action is Action.CREATE


def test_the_command_in_a_file_is_no_difference(tmp_path: Path) -> None:
    """A file that another command wrote with the same contents is left alone; any other comment is
    a difference.
    """

    def made(command: str, rest: str = "one\n") -> tuple[RenderedFile]:
        return (RenderedFile(path="a.txt", text=f"# Written by dsgen 0.3.0: {command}\n{rest}"),)

    write(made("dsgen --gpus 8"), tmp_path)
    assert compare(made("dsgen"), tmp_path)[0].action is Action.IDENTICAL
    assert compare(made("dsgen", "# two\n"), tmp_path)[0].action is Action.CONFLICT


def a_set(hashes: object, *names: str) -> list[RenderedFile]:
    """A `plan.json` that lists files, and files."""
    plan = RenderedFile(path="plan.json", text=json.dumps({"file_hashes": hashes}))
    return [plan, *(RenderedFile(path=name, text=f"{name}\n") for name in names)]


def test_files_that_the_former_set_alone_has_are_removed(tmp_path: Path) -> None:
    """With force they go, whichever command wrote them; without it they are named, and all
    stays.
    """
    hashes = {"a.json": content_hash(b"a.json\n"), "b.sh": content_hash(b"run\n")}
    write([*a_set(hashes, "a.json"), RenderedFile(path="b.sh", text="run\n")], tmp_path)
    (tmp_path / "b.sh").write_text("# Written by dsgen 1: dsgen sweep\nrun\n")
    new = a_set({}, "c.txt")

    with pytest.raises(WouldOverwrite) as refused:
        write(new, tmp_path)
    named = {change.path.name: change.action for change in refused.value.changes}
    assert named == {
        "plan.json": Action.CONFLICT,
        "a.json": Action.REMOVE,
        "b.sh": Action.REMOVE,
    }
    assert "--- " + str(tmp_path / "a.json") in diff(compare_sets(new, tmp_path))
    assert (tmp_path / "a.json").exists()

    write(new, tmp_path, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.txt", "plan.json"]


def test_a_file_of_the_former_set_that_was_changed_is_kept(tmp_path: Path) -> None:
    """What somebody has edited since is named and stays, with force too."""
    write(a_set({"a.json": content_hash(b"a.json\n")}, "a.json"), tmp_path)
    (tmp_path / "a.json").write_text("mine\n")
    changes = write(a_set({}, "c.txt"), tmp_path, force=True)
    assert [change.path.name for change in changes if change.action is Action.KEEP] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "mine\n"


@pytest.mark.parametrize(
    "name", ["../x", "/x", "sub/x", "link", "twice", "sub", ".x", "", "plan.json", "a/../../x"]
)
def test_a_list_of_files_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    """Of a plan.json, which may be anybody's, only plain files beside it are taken for the
    set's.
    """
    folder, text = tmp_path / "out", "mine\n"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "x", folder / "sub" / "x", folder / ".x", folder / "one"):
        path.write_text(text)
    (folder / "link").symlink_to(tmp_path / "x")
    (folder / "twice").hardlink_to(folder / "one")
    listed = str(tmp_path / "x") if name == "/x" else name
    write(a_set({listed: content_hash(text.encode())}), folder)
    before = sorted(tmp_path.rglob("*"))
    write(a_set({}), folder, force=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "{}", '{"file_hashes": 3}', "[" * 100_000, "\ud800"]
)
def test_a_list_that_cannot_be_read_removes_nothing(text: str, tmp_path: Path) -> None:
    """Whatever is in plan.json's place, the new set is written, and other files stay."""
    (tmp_path / "plan.json").write_text(text, errors="surrogatepass")
    (tmp_path / "a.json").write_text("{}")
    write(a_set({}, "c.txt"), tmp_path, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "c.txt", "plan.json"]
