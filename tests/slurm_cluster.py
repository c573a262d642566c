"""A real Slurm on this machine, as root: slurmctld and one slurmd a node, or nodes that only the
scheduler knows.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.workers import HANGS_S

_HOSTS = Path("/etc/hosts")
_SECONDS_TO_START = 300  # on a busy machine
_TAG = f"# dsgen slurm test {os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """A running Slurm: its folder, node names, and how to call its commands."""

    folder: Path
    node_names: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands find this cluster."""
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SLURM", "SBATCH"))
        }
        return {**inherited, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self, *command: str, cwd: Path | None = None, timeout_s: float = HANGS_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command against this cluster; its status is the caller's to check."""
        return subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            timeout=timeout_s,
            text=True,
            capture_output=True,
            check=False,
        )

    def finished(self, job: str, timeout_s: float = HANGS_S) -> dict[str, str]:
        """The fields of `scontrol show job` once `job` has ended."""
        deadline, fields = time.monotonic() + timeout_s, dict[str, str]()
        while time.monotonic() < deadline:
            fields = dict(
                re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", job).stdout)
            )
            if fields.get("JobState") not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return fields
            time.sleep(0.2)
        raise TimeoutError(f"job {job} did not end within {timeout_s} s: {fields}")

    def ran(
        self, script: Path, folder: Path, programs: Path = Path(sys.executable).parent
    ) -> tuple[dict[str, str], str]:
        """Submit a script from `folder`, with this folder of programs first in the path: its fields
        once it has ended, its output.

        Fails where Slurm refuses it.
        """
        path = f"PATH={programs}:{os.environ['PATH']}"
        command = ("env", path, "sbatch", "--parsable", "--output=out.txt", str(script))
        submitted = self.run(*command, cwd=folder)
        assert submitted.returncode == 0, submitted.stderr
        ended = self.finished(submitted.stdout.strip())
        return ended, (folder / "out.txt").read_text()


def sbatch_test_only(script: Path, cluster: SlurmCluster) -> subprocess.CompletedProcess[str]:
    """Whether Slurm would take `script`: status 0, and on stderr when and where it would start, or
    why not.
    """
    return cluster.run("sbatch", "--test-only", script.name, cwd=script.parent)


@contextmanager
def slurm_for(
    *, cpus: int, gpus: int, memory_mib: int, nodes: int, partition: str = "main"
) -> Iterator[SlurmCluster]:
    """A scheduler of `nodes` such machines that exist for it only: for `sbatch --test-only` at any
    size.
    """
    node = f"NodeName=n[1-{nodes}] CPUs={cpus} RealMemory={memory_mib} State=CLOUD{_gres(gpus)}"
    cloud = (
        "SuspendProgram=/bin/true",
        "ResumeProgram=/bin/true",
        "SuspendTime=600",
        "ResumeTimeout=600",
    )
    gres = f"NodeName=n[1-{nodes}] Name=gpu Count={gpus}\n" if gpus else ""
    with _folder() as folder:
        _write_configuration(folder, [*cloud, node], partition, gres)
        cluster = SlurmCluster(
            folder=folder, node_names=tuple(f"n{i}" for i in range(1, nodes + 1))
        )
        with _daemons() as daemons:
            daemons.append(_start(cluster, "slurmctld", "-D"))
            _wait_for(cluster, ("scontrol", "ping"), "is UP")
            yield cluster


@contextmanager
def running_slurm(
    *, nodes: int, gpus: int, cpus: int = 8, partition: str = "main", settings: tuple[str, ...] = ()
) -> Iterator[SlurmCluster]:
    """A cluster of `nodes` slurmd on this machine, each under its own host name, that really runs
    jobs.
    """
    names = tuple(f"dsgen-node{i}" for i in range(1, nodes + 1))
    with _folder() as folder, _host_names(names), _daemons() as daemons:
        lines = [
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={_free_port()} "
            f"CPUs={cpus} RealMemory=4000"
            f"{_gres(gpus)}"
            for name in names
        ]
        gres = (
            f"NodeName={','.join(names)} Name=gpu File={folder}/gpu[0-{gpus - 1}]\n" if gpus else ""
        )
        for index in range(gpus):
            # as good as /dev/null, which it is
            os.mknod(folder / f"gpu{index}", 0o020666, os.makedev(1, 3))
        _write_configuration(folder, [*settings, *lines], partition, gres)
        cluster = SlurmCluster(folder=folder, node_names=names)
        daemons.append(_start(cluster, "slurmctld", "-D"))
        _wait_for(cluster, ("scontrol", "ping"), "is UP")
        for name in names:
            own_name = f'hostname {name} && exec slurmd -D -N {name} -f "$SLURM_CONF"'
            daemons.append(_start(cluster, "unshare", "--uts", "bash", "-c", own_name, log=name))
        _wait_for(cluster, ("sinfo", "--noheader", "--format=%D %T"), f"{nodes} idle")
        yield cluster


def _gres(gpus: int) -> str:
    return f" Gres=gpu:{gpus}" if gpus else ""


def _write_configuration(folder: Path, lines: list[str], partition: str, gres: str) -> None:
    settings = (
        "ClusterName=dsgen",
        f"FirstJobId={_first_job_id()}",
        f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
        f"SlurmctldPort={_free_port()}",
        "SlurmUser=root",
        "AuthType=auth/none",
        "CredType=cred/none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "EnforcePartLimits=ALL",
        "GresTypes=gpu",
        "SchedulerParameters=sched_interval=1,bf_interval=1",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
    )
    last = f"PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    (folder / "slurm.conf").write_text("\n".join((*settings, *lines, last, "")))
    (folder / "gres.conf").write_text(gres)
    (folder / "state").mkdir()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dsgen-slurm-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _host_names(names: tuple[str, ...]) -> Iterator[None]:
    """Lines in /etc/hosts for `names`, taken out again afterwards."""
    lines = "".join(f"127.0.0.1 {name} {_TAG}\n" for name in names)
    with _alone():
        before = _HOSTS.read_text()
        with _HOSTS.open("a") as stream:
            stream.write(lines if before.endswith("\n") else f"\n{lines}")
    try:
        yield
    finally:
        with _alone():
            kept = [
                line for line in _HOSTS.read_text().splitlines(keepends=True) if _TAG not in line
            ]
            _HOSTS.write_text("".join(kept))


@contextmanager
def _alone() -> Iterator[None]:
    """No other process of these tests changes the table of hosts meanwhile."""
    with (Path(tempfile.gettempdir()) / "dsgen-slurm-hosts.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _daemons() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to be ended, last started first, when the block ends."""
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        yield daemons
    finally:
        for daemon in reversed(daemons):
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


def _start(cluster: SlurmCluster, *command: str, log: str = "daemon") -> subprocess.Popen[bytes]:
    with (cluster.folder / f"{log}.out").open("ab") as stream:
        return subprocess.Popen(
            command,
            env=cluster.environment,
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _wait_for(cluster: SlurmCluster, command: tuple[str, ...], answer: str) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    said = ""
    while time.monotonic() < deadline:
        result = cluster.run(*command)
        said = result.stdout + result.stderr
        if answer in said:
            return
        time.sleep(0.1)
    logs = "\n".join(
        path.read_text(errors="replace")[-2000:]
        for path in sorted(cluster.folder.glob("*.[lo][ou][gt]"))
    )
    raise TimeoutError(f"{' '.join(command)} says {said!r} after {_SECONDS_TO_START} s\n{logs}")


def _first_job_id() -> int:
    """A job's number after which 50 more have free ports: scripts make the port of a rendezvous of
    it.

    Clusters of other processes, which share the machine's ports, begin elsewhere.
    """
    start = 50 + os.getpid() % 180 * 50
    for first in (*range(start, 9_900, 50), *range(50, start, 50)):
        if all(_is_free(20_000 + first + job) for job in range(50)):
            return first
    raise RuntimeError("no 50 ports in a row are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
