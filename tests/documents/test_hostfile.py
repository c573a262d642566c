"""Hostfiles and `.deepspeed_env` are read as DeepSpeed's launcher reads them."""

from __future__ import annotations

import pytest

from dsgen.documents.hostfile import read_env_file, read_hostfile
from dsgen.job.text import Text
from tests.needs import needs_deepspeed

_HOSTFILES = (
    "worker-0 slots=8\nworker-1 slots=8\n",
    "# hosts\n\n  worker-0   slots=4  \n\tworker-1\tslots=2 # two\n",
    "worker-0 slots=8 max_slots=8\n",
    "worker-0 slots=8x\n",
    "worker-0 slots=0\n",
    "worker-0 slots=008\r\nworker-1 slots=1\r\n",
    "worker-0 slots=-1\n",
    "worker-0 slots = 8\n",
    "worker-0 slots=\n",
    "worker-0 slots=eight\n",
    "worker-0\n",
    "worker-0:8\n",
    "worker-0 8\n",
    "slots=8\n",
    "worker-0 slots=8\nworker-0 slots=4\n",
    "worker-0 max_slots=8 slots=8\n",
    "worker-0, slots=8\n",
    "worker-0 # comment slots=8\n",
    "",
    "\n# nothing\n",
    "a slots=1\x0cb slots=2\n",
)


def _text(content: str) -> Text:
    return Text(path="hostfile", content=content, lines=content.splitlines())


@pytest.mark.integration
@needs_deepspeed
@pytest.mark.parametrize("content", _HOSTFILES)
def test_hostfiles_are_accepted_and_refused_as_by_deepspeed(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's own parser finds the same hosts and slots, or refuses a file in which we see a reason."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.launcher.runner import _parse_hostfile

    entries = read_hostfile(_text(content)).entries
    bad = not entries or any(entry.slots is None for entry in entries)
    bad = bad or len({entry.host for entry in entries}) < len(entries)
    try:
        theirs = dict(_parse_hostfile(content.replace("\r\n", "\n").splitlines(keepends=True)))
    except ValueError:
        assert bad
    else:
        if "\x0c" not in content:  # str.splitlines splits there, a file's readlines doesn't
            assert not bad
            assert {entry.host: entry.slots for entry in entries} == theirs


def test_a_refused_line_is_an_entry_without_slots() -> None:
    """Bad lines are kept with their place, so that a finding can point at them."""
    hosts = read_hostfile(_text("a slots=8\n# b\n  c slot=8\n"))
    assert [
        (entry.host, entry.slots, hosts.locate(entry).line, hosts.locate(entry).column) for entry in hosts.entries
    ] == [
        ("a", 8, 1, 1),
        ("c", None, 3, 3),
    ]


def test_environment_lines_without_an_equals_sign_have_no_value() -> None:
    """Blank lines and comments are no assignments: DeepSpeed's launcher stops at them with a ValueError."""
    content = "NCCL_DEBUG=INFO\n\nA=b=c\n# comment\n#X=1\n"
    found = read_env_file(_text(content))
    assert [(line.name, line.value) for line in found.entries] == [
        ("NCCL_DEBUG", "INFO"),
        ("", None),
        ("A", "b=c"),
        ("# comment", None),
        ("#X", "1"),
    ]
    for line, raw in zip(found.entries, content.splitlines(keepends=True), strict=True):
        try:
            raw.split("=", maxsplit=1)[1]  # as in main of deepspeed/launcher/runner.py
        except IndexError:
            assert line.value is None
        else:
            assert line.value is not None
