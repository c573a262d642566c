"""A Python that begins with torch, DeepSpeed and transformers imported: `warm_client.py SOCKET
WORDS`, WORDS as of `python`.

The process itself is forked by `tests/warm_python.py`, behind the socket. This one stands for it in
the tree of processes: it hands on what it is sent, ends as that one ends, and when it is killed,
that one is, with all that it started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys

#: What a process can be sent, but for KILL and STOP, which nobody can hand on, and CHLD.
HANDED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTERM,
)


def main() -> int:
    """Start the process, and wait for its end."""
    ignored = [each for each in HANDED_ON if signal.getsignal(each) is signal.SIG_IGN]
    told: list[int] = []
    for each in HANDED_ON:
        signal.signal(each, lambda number, _: told.append(number))
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing)

    asked = {
        "words": sys.argv[2:],
        "folder": os.getcwd(),  # noqa: PTH109 - an import of pathlib takes longer than all the rest
        "environment": dict(os.environ),
        "ignored": ignored,
    }
    text = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as server, open("/proc/self/ns/uts") as host:  # noqa: PTH123
        server.connect(sys.argv[1])
        files = [0, 1, 2, host.fileno()]
        socket.send_fds(server, [struct.pack("!I", len(text))], files)
        server.sendall(text)
        for end in (0, 1, 2):  # the process alone has them, so that their readers see its end
            os.close(end)
        return wait(server, reading)


def wait(server: socket.socket, signals: int) -> int:
    """Hand on each signal until the server says how the process ended; its status, as a shell
    counts.
    """
    while True:
        ready, _, _ = select.select([server, signals], [], [])
        if signals in ready:
            server.sendall(os.read(signals, 100))
        if server in ready:
            status = struct.unpack("!i", server.recv(4))[0]
            if status < 0:  # by a signal, which ends this one too
                signal.signal(-status, signal.SIG_DFL)
                os.kill(os.getpid(), -status)
            return int(status)


sys.exit(main())
