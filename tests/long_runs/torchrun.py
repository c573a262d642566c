"""A stand-in for torchrun on a node with one process: starts the script, and hands TERM on to it as
torchrun does.

torchrun imports PyTorch, which takes longer than a run here. Ended by TERM it exits with ENDS_WITH:
srun reports 0 for some steps that were cancelled.
"""

import os
import signal
import subprocess
import sys
import time

given = {
    word.partition("=")[0]: word.partition("=")[2] for word in sys.argv if word.startswith("--n")
}
words = [
    word
    for word in sys.argv[1:]
    if not word.startswith(("--nnodes", "--nproc", "--node", "--master", "--tee"))
]
script = next(index for index, word in enumerate(words) if word.endswith(".py"))
child = subprocess.Popen(
    [sys.executable, *words[script:]],
    env={
        **os.environ,
        "RANK": given.get("--node-rank", "0"),
        "WORLD_SIZE": given.get("--nnodes", "1"),
        "LOCAL_RANK": "0",
    },
)
told = False


def end(*_: object) -> None:
    """Tell the script."""
    global told
    told = True
    child.terminate()


signal.signal(signal.SIGTERM, end)
killed = None
while child.poll() is None:
    time.sleep(0.1)
    killed = killed or (time.monotonic() + 30 if told else None)  # as torchrun
    if killed and time.monotonic() > killed:
        child.kill()
sys.exit(int(os.environ["ENDS_WITH"]) if told else child.returncode)
