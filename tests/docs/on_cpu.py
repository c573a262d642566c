"""Starts a training script in two processes on processors, as torchrun does on GPUs: `on_cpu.py
SCRIPT ARGUMENTS`.

Both begin with what is imported here, once: that takes longer than a run. What has to be other on
processors is set here too.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

gc.disable()  # nothing that is imported becomes garbage
os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: E402, F401 - before transformers looks for it
from torch.distributed import TCPStore  # noqa: E402
from transformers import (  # noqa: E402, F401 - for the scripts
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    LlamaForCausalLM,
    Trainer,
)

RANKS = 2
PORT_BYTES = 5


def train(rank: int, port: str) -> None:
    """Run the script as this rank, with the agent's store at this port, as torchrun starts it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    del sys.argv[0]
    at = next(number for number, word in enumerate(sys.argv) if word.endswith("ds_config.json"))
    config = json.loads(Path(sys.argv[at]).read_text())
    config["optimizer"]["params"]["torch_adam"] = True
    own = Path(f"ds_config_{rank}.json")
    own.write_text(json.dumps(config))
    sys.argv[at] = str(own)
    if "--output_dir" in sys.argv:
        sys.argv += ["--use_cpu", "true", "--logging_steps", "1"]
        sys.argv += ["--report_to", "none", "--disable_tqdm", "true"]
    runpy.run_path(sys.argv[0], run_name="__main__")


def start(rank: int, ports: int) -> int:
    """Start a rank in a process of its own, which reads the store's port from a pipe."""
    process = os.fork()
    if process:
        return process

    status = 1
    try:
        train(rank, os.read(ports, PORT_BYTES).decode())
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # shutting down aborts now and then on a thread of gloo's


def main() -> int:
    """Start all ranks, and end the others when one fails."""
    gc.freeze()
    ports, told = os.pipe()
    running = {start(rank, ports) for rank in range(RANKS)}

    # The store's threads begin after the processes, which would have only some of them.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(told, RANKS * f"{store.port:0{PORT_BYTES}}".encode())
    while running:
        process, status = os.wait()
        running.remove(process)
        if status:
            for other in running:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


sys.exit(main())
