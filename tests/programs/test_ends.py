"""What ends a job on plain machines, and that nothing is left of it: real ssh and pdsh to two real
ssh servers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.needs import needs_pdsh, needs_sshd
from tests.programs.hand_built import HOSTILE, plan, program
from tests.programs.places import put
from tests.programs.test_shell import free_port
from tests.ssh_servers import HOSTS, SshServers, ssh_servers
from tests.workers import HANGS_S, slowness

pytestmark = [pytest.mark.integration, needs_sshd, needs_pdsh, pytest.mark.xdist_group("ssh")]
SCRIPT = str(Path(__file__).parent / "dies.py")
#: the time in which a failure has to end everything, on a machine with nothing else to do
WITHIN_S = 15
LAUNCHERS = ("ssh", "pdsh")
BOTH = pytest.mark.parametrize("launcher", LAUNCHERS)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServers]:
    """Two hosts."""
    with ssh_servers(tmp_path_factory.mktemp("ssh")) as both:
        yield both


@contextmanager
def started(
    folder: Path,
    servers: SshServers,
    launcher: str,
    *,
    hosts: tuple[str, ...] = HOSTS,
    **variables: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """`launch.sh` of two ranks on each of two hosts."""
    from dsgen.programs.launchers import launch_files

    (folder / "said").mkdir(parents=True)
    built = program(SCRIPT, hostile=HOSTILE[:3])
    options = {
        "hosts": list(hosts),
        "launcher": launcher,
        "master_port": free_port(),
        "ssh_port": servers.port,
    }
    environment = {"STAND_IN_FOLDER": str(folder / "said"), **variables}
    made = plan(
        "shell", script=SCRIPT, gpus=4, gpus_per_node=2, options=options, environment=environment
    )
    put((*built.files, *launch_files(made, built)), folder / "it's a folder")
    with (folder / "out").open("wb") as out:
        job = subprocess.Popen(
            # By bash, as its first line says: another thread's child may hold it open, and then
            # nothing may execute it.
            ["bash", str(folder / "it's a folder" / "launch.sh")],
            cwd=folder, env=servers.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            preexec_fn=_heed_signals,
        )  # fmt: skip
    try:
        yield job
    finally:
        job.kill()
        job.wait()
        for each in left(folder):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def _heed_signals() -> None:
    """Undo what nohup and background jobs hand on: bash can't trap what was ignored when it
    started.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def left(folder: Path) -> list[int]:
    """The processes of the job that still run: those that have its variable."""
    mark = f"\0STAND_IN_FOLDER={folder / 'said'}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in b"\0" + path.read_bytes():
                found.append(int(path.parent.name))
    return found


def wait_until(question: Callable[[], bool], folder: Path, timeout_s: float) -> None:
    """Return when `question` is true; fail with what the job said after `timeout_s`, more on a busy
    machine.
    """
    began, allowed_s = time.monotonic(), timeout_s * slowness()
    while not question():
        if time.monotonic() - began > allowed_s:
            said = (folder / "out").read_text(errors="replace")
            pytest.fail(f"not so after {allowed_s:.0f} s; left: {left(folder)}\n{said[-4000:]}")
        time.sleep(0.1)


def every_rank_runs(folder: Path) -> bool:
    """Whether all four have said so."""
    return len(list((folder / "said").glob("[0-3]"))) == 4


def wait_for_ranks(folder: Path, job: subprocess.Popen[bytes]) -> None:
    """Every rank runs before the job ends."""
    wait_until(lambda: every_rank_runs(folder) or job.poll() is not None, folder, HANGS_S)
    assert every_rank_runs(folder), (folder / "out").read_text()


def check_nothing_left(folder: Path, within_s: float = WITHIN_S) -> None:
    """No process of the job is left soon."""
    wait_until(lambda: not left(folder), folder, within_s)


def with_both(check: Callable[[Path, str], None], folder: Path) -> None:
    """Do `check` with either launcher at the same time, each in a folder of its own."""
    with ThreadPoolExecutor() as pool:
        done = {launcher: pool.submit(check, folder / launcher, launcher) for launcher in LAUNCHERS}
    for each in done.values():
        each.result()


@pytest.mark.parametrize(
    ("launcher", "rank", "variables"),
    [
        ("ssh", "0", {}),
        ("ssh", "3", {"DEAF": "1"}),
        ("pdsh", "0", {"DEAF": "1"}),
        ("pdsh", "3", {}),
    ],
    ids=["ssh-0", "ssh-3-deaf", "pdsh-0-deaf", "pdsh-3"],
)  # every pair of what may differ
def test_a_rank_that_dies_ends_every_rank(
    tmp_path: Path, servers: SshServers, launcher: str, rank: str, variables: dict[str, str]
) -> None:
    """A rank that exits with 13 ends the job with 13 on both hosts, within seconds, even where
    ranks ignore TERM.
    """
    with started(tmp_path, servers, launcher, **variables) as job:
        wait_for_ranks(tmp_path, job)
        (tmp_path / "said" / "dies").write_text(rank)
        wait_until(lambda: job.poll() is not None and not left(tmp_path), tmp_path, WITHIN_S)
        assert job.returncode == 13, (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    "told", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL], ids=lambda s: s.name
)
def test_a_signal_to_the_script_ends_every_rank(
    tmp_path: Path, servers: SshServers, told: signal.Signals
) -> None:
    """When launch.sh gets a signal, or is killed, the ranks on both hosts end."""

    def check(folder: Path, launcher: str) -> None:
        with started(folder, servers, launcher, DEAF="1") as job:
            wait_for_ranks(folder, job)
            job.send_signal(told)
            job.wait(timeout=HANGS_S)
            check_nothing_left(folder)
            assert job.returncode == (-9 if told is signal.SIGKILL else 128 + told)

    with_both(check, tmp_path)


@BOTH
def test_a_host_out_of_reach_ends_the_job(
    tmp_path: Path, servers: SshServers, launcher: str
) -> None:
    """A host that refuses the connection ends what the other has started, with ssh's status."""
    with started(tmp_path, servers, launcher, hosts=("127.0.0.1", "127.0.0.3")) as job:
        job.wait(timeout=HANGS_S)
        check_nothing_left(tmp_path)
        assert job.returncode == 255


@BOTH
def test_a_closed_connection_ends_the_job(
    tmp_path: Path, servers: SshServers, launcher: str
) -> None:
    """A connection that is closed ends the job on both hosts, with ssh's status."""
    with started(tmp_path, servers, launcher) as job:
        wait_for_ranks(tmp_path, job)
        (session,) = servers.sessions("127.0.0.2")
        os.kill(session, signal.SIGKILL)
        wait_until(lambda: job.poll() is not None, tmp_path, WITHIN_S)
        check_nothing_left(tmp_path)
        assert job.returncode == 255


def test_a_host_that_hears_nothing_ends_its_ranks(tmp_path: Path, servers: SshServers) -> None:
    """Over ssh, a host from which the rest is cut off ends its ranks: nothing has come for 30 s."""
    with started(tmp_path, servers, "ssh") as job:
        wait_for_ranks(tmp_path, job)
        job.send_signal(signal.SIGSTOP)  # no word to either host, and no connection closed
        check_nothing_left(tmp_path, 45)
