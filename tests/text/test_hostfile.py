"""Hostfiles and `.deepspeed_env` are read as DeepSpeed's launcher reads them."""

from __future__ import annotations

import pytest

from dsgen.text.hostfile import read_environment, read_hosts
from dsgen.text.text import Text
from tests.needs import needs_deepspeed
from tests.programs.places import read_by

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
def test_hostfiles_are_accepted_and_refused_as_by_deepspeed(
    content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed's own parser finds the same hosts and slots, or refuses a file in which we see a
    reason.
    """
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.launcher.runner import _parse_hostfile

    entries = read_by(read_hosts, _text(content)).entries
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
    hosts = read_by(read_hosts, _text("a slots=8\n# b\n  c slot=8\n"))
    assert [
        (entry.host, entry.slots, hosts.locate(entry).line, hosts.locate(entry).column)
        for entry in hosts.entries
    ] == [
        ("a", 8, 1, 1),
        ("c", None, 3, 3),
    ]


def test_an_environment_file_has_its_lines() -> None:
    """Blank lines and comments are lines too: DeepSpeed's launcher stops at them."""
    found = read_by(
        read_environment, _text("NCCL_DEBUG=INFO\n\nA=b=c\n# comment\nNCCL_DEBUG=WARN\n")
    )
    assert [line for line, _ in found.lines] == [
        "NCCL_DEBUG=INFO",
        "",
        "A=b=c",
        "# comment",
        "NCCL_DEBUG=WARN",
    ]
