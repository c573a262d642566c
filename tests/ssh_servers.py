"""Real ssh servers on this machine, as two hosts: 127.0.0.1 and 127.0.0.2, with keys and a port of
their own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.needs import SSHD, program
from tests.workers import HANGS_S

HOSTS = ("127.0.0.1", "127.0.0.2")
_SERVER = """
Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
SetEnv PATH={path}
"""
_CLIENT = """
Host *
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


@dataclass(frozen=True, kw_only=True)
class SshServers:
    """A running sshd that listens as both hosts: its port and process, and the environment whose
    ssh knows it.
    """

    port: int
    process: int
    environment: dict[str, str]

    def sessions(self, host: str) -> list[int]:
        """The ids of the server's processes that hold a connection to `host`."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.process)], text=True, capture_output=True, check=False
        )
        ids = [int(word) for word in found.stdout.split()]
        sockets = subprocess.run(
            ["ss", "-tnpH", "src", host], text=True, capture_output=True, check=True
        ).stdout
        return [each for each in ids if f"pid={each}," in sockets]


@contextmanager
def ssh_servers(folder: Path) -> Iterator[SshServers]:
    """Both hosts, reachable by `ssh` and `pdsh` without a password until the block ends."""
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    port, torchrun = _free_port(), program("torchrun") or sys.executable
    path = f"{Path(torchrun).parent}:/usr/bin:/bin"
    (folder / "sshd_config").write_text(_SERVER.format(port=port, folder=folder, path=path))
    (folder / "ssh_config").write_text(_CLIENT.format(folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(
        f'#!/bin/bash\nexec /usr/bin/ssh -F "{folder}/ssh_config" "$@"\n'
    )
    (folder / "bin" / "ssh").chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it when it is root
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            [SSHD or "sshd", "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        for host in HOSTS:
            _wait_for(host, port)
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        yield SshServers(port=port, process=server.pid, environment=environment)
    finally:
        server.terminate()
        server.wait(timeout=HANGS_S)


def _wait_for(host: str, port: int, timeout_s: float = HANGS_S) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
