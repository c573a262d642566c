"""A Python for tests whose processes begin with torch, DeepSpeed and transformers imported, which
takes longer than what they then do.

`warm_python()` is the path of a program that takes the words of `python`. Behind it is one process
that has imported, of which each is forked; `tests/warm_client.py` is what its caller starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).with_name("warm_client.py")
KEEP = struct.pack("!I", 0)  # asks for nothing
#: Of the environment, what is read when a module is imported.
READ_AT_IMPORT = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
FILES = 4  # standard streams, and the namespace of the host's name
_CLONE_NEWUTS = 0x04000000


@cache
def warm_python() -> Path:
    """The program. All processes of a test run share its server, which ends with the last of
    them.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir()) / f"dsgen-warm-{run}"
    folder.mkdir(exist_ok=True)
    program, at = folder / "python", folder / "socket"
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept(at):
            write(program, f'exec {sys.executable} -ISE {CLIENT} {at} "$@"')
            (folder / "bin").mkdir(exist_ok=True)
            launched = f'PYTHON_EXEC={program} exec {program} -m torch.distributed.run "$@"'
            write(folder / "bin" / "torchrun", launched)
            start_server(at)
            assert kept(at)
    return program


def warm_torchrun() -> Path:
    """The real torchrun, in a folder of its own: it and its ranks begin with all imported."""
    return warm_python().parent / "bin" / "torchrun"


def write(program: Path, line: str) -> None:
    """A program of one line."""
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


_KEPT: list[object] = []  # as long as this process lives


def kept(at: Path) -> bool:
    """Whether a server is there; it stays for this process."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(at))
        connection.sendall(KEEP)
        there = connection.recv(1) == b"+"
    except OSError:
        there = False
    if there:
        _KEPT.append(connection)
    else:
        connection.close()
    return there


def start_server(at: Path) -> None:
    """Start it, and return when it answers."""
    at.unlink(missing_ok=True)
    with (at.parent / "log").open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, __file__, str(at)],
            env={**os.environ, **READ_AT_IMPORT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    _KEPT.append(server)
    assert server.stdout
    with server.stdout as stream:
        ready = stream.read()
    assert ready == b"ready\n", (at.parent / "log").read_text()[-4000:]


class Server:
    """Forks what clients ask for, as long as a process of the tests keeps it."""

    def __init__(self, at: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(at)
        self.listener.listen(100)
        self.clients: dict[int, socket.socket] = {}  # by the process that each asked for
        self.keepers: set[socket.socket] = set()
        self.ended, writing = os.pipe()
        for end in (self.ended, writing):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing)

    def serve(self) -> None:
        """Answer until nobody needs it any more."""
        for file in (self.ended, self.listener):
            self.selector.register(file, selectors.EVENT_READ)
        needed = True
        while needed:
            for key, _ in self.selector.select():
                if key.fileobj == self.ended:
                    os.read(self.ended, 1000)
                    self.reap()
                elif key.fileobj is self.listener:
                    self.accept(self.listener.accept()[0])
                elif key.fileobj in self.keepers:
                    self.selector.unregister(key.fileobj)
                    self.keepers.remove(key.fileobj)  # type: ignore[arg-type]
                    needed = bool(self.keepers)
                elif self.clients.get(key.data) is key.fileobj:
                    self.hand_on(key.data)
        for process in self.clients:
            kill(process)

    def reap(self) -> None:
        """Tell the clients of processes that have ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = self.clients.pop(ended[0], None)
                if client:
                    self.selector.unregister(client)
                    with suppress(OSError):
                        client.sendall(struct.pack("!i", os.waitstatus_to_exitcode(ended[1])))
                    client.close()

    def accept(self, client: socket.socket) -> None:
        """Start what a client asks for, or note that a process keeps this one."""
        size, files, _, _ = socket.recv_fds(client, len(KEEP), FILES)
        if size == KEEP:
            self.keepers.add(client)
            self.selector.register(client, selectors.EVENT_READ)
            client.sendall(b"+")
            return
        with client.makefile("rb") as stream:
            asked = json.loads(stream.read(struct.unpack("!I", size)[0]))
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self.listener, client, *self.clients.values(), *self.keepers):
                inherited.close()
            os._exit(run(asked, files))
        for file in files:
            os.close(file)
        self.clients[process] = client
        self.selector.register(client, selectors.EVENT_READ, process)

    def hand_on(self, process: int) -> None:
        """Send a process what its client was sent, or kill it with its client."""
        client = self.clients[process]
        with suppress(ConnectionError):
            if numbers := client.recv(100):
                for number in numbers:
                    send(process, number)
                return
        self.selector.unregister(client)
        client.close()
        del self.clients[process]
        kill(process)


def children(process: int) -> list[int]:
    """What a process has started."""
    try:
        return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    except (FileNotFoundError, ProcessLookupError):
        return []


def ignores(process: int, number: int) -> bool:
    """Whether a process ignores a signal."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send(process: int, number: int) -> None:
    """Send a signal. One that the process ignores is for its children: launch scripts look for
    these below what they have started, where they find none.
    """
    for each in children(process) if ignores(process, number) else [process]:
        with suppress(ProcessLookupError):
            os.kill(each, number)


def kill(process: int) -> None:
    """Kill a process with all that it has started, as Slurm does."""
    below = children(process)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    for each in below:
        kill(each)


def run(asked: dict[str, Any], files: list[int]) -> int:
    """Be what a client asked for; the status."""
    status: object = 1
    try:
        os.setsid()
        *streams, host = files
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if os.fstat(host).st_ino != Path("/proc/self/ns/uts").stat().st_ino:
            assert ctypes.CDLL(None).setns(host, _CLONE_NEWUTS) == 0
        for file in files:
            os.close(file)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(":"))
        for number in asked["ignored"]:
            signal.signal(number, signal.SIG_IGN)
        execute([word for word in asked["words"] if word != "-u"])
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError):
            output.flush()
    return int(status)  # type: ignore[call-overload, no-any-return]


def execute(words: list[str]) -> None:
    """Do what `python WORDS` does."""
    gc.enable()
    if words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], str(Path.cwd())
        sys.modules.pop(words[1], None)  # it is run anew, as its main module
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def warm() -> None:
    """Import what processes need, and what DeepSpeed's engine imports when it starts."""
    import deepspeed.module_inject.auto_ep_layer
    import deepspeed.runtime.zero.muon.muon_optimizer
    import torch._inductor.compile_fx
    import torch.distributed.run
    from transformers import (  # noqa: F401
        AutoModelForCausalLM,
        AutoTokenizer,
        HfArgumentParser,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        Trainer,
        TrainingArguments,
    )

    assert deepspeed and torch


if __name__ == "__main__":
    gc.disable()  # nothing that is imported becomes garbage
    ready = os.dup(1)
    os.dup2(2, 1)  # for what is imported and prints
    warm()
    gc.freeze()
    server = Server(sys.argv[1])
    os.write(ready, b"ready\n")
    os.close(ready)
    server.serve()
    shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
