"""What starts a run on Kubernetes, SkyPilot, AzureML and plain machines, in a container of its own,
as these would.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

import dsgen
from tests.programs.places import put

WORKER = Path(__file__).with_name("train_ends.py")
TORCHRUN = WORKER.with_name("torchrun.py")
INTERVAL = 4  # steps between checkpoints
TARGETS = ("kubernetes", "skypilot", "azureml", "shell")
KINDS = ("PyTorchJob", "TrainJob", "JobSet")
#: Ways of ending: Megatron saves and ends with status 0 when it is told to stop, the others end at
#: once.
WAYS: Mapping[str, tuple[str, str]] = {
    "Megatron": ("megatron-lm", "--save"),
    "DeepSpeed": ("deepspeed", "--save_dir"),
    "the Trainer": ("huggingface", "--output_dir"),
}
LENGTHS = ("steps", "samples")


def spec(folder: Path, target: str, way: str, length: str, kind: str) -> dict[str, Any]:
    """A job of about 30 steps on one GPU. By samples: Megatron with a ramp, the Trainer by
    epochs.
    """
    framework, _ = WAYS[way]
    training: dict[str, Any] = {"sequence_length": 128, "global_batch": 8, "precision": "bf16"}
    launch: dict[str, Any] = {"target": target, "script": str(WORKER), "arguments": []}
    training["duration"] = {"steps": 30} if length == "steps" else {"samples": 240, "epochs": 1}
    if length == "samples" and way == "Megatron":
        training["batch_ramp"] = {"start": 4, "increment": 4, "samples": 40}
    if length == "samples" and way == "the Trainer":
        del training["duration"]
        launch["arguments"] = ["--num_train_epochs", "3"]
    if way == "DeepSpeed":
        launch["arguments"] = ["--steps", "30"]
    if target == "kubernetes":
        launch["kubernetes"] = {"kind": kind}
    data = {"path": "/d", "tokenizer": {"type": "HuggingFaceTokenizer", "path": "/t"}}
    return {
        "name": folder.name,
        "framework": framework,
        "model": "gpt2",
        "cluster": {
            "accelerator": "a100-80gb-sxm",
            "accelerators_per_node": 1,
            "network_gbits_per_s_per_node": 100,
        },
        "nodes": 1,
        "training": training,
        "layout": {"tensor": 1, "context": 1, "zero_stage": 1, "offload": "none", "micro_batch": 4},
        "output": {"checkpoints": str(folder / "check points"), "save_interval": INTERVAL},
        "launch": launch,
        **({"data": data} if way == "Megatron" else {}),
    }


def write(
    folder: Path,
    target: str,
    way: str,
    length: str,
    kind: str = "PyTorchJob",
    *,
    resumes: bool = True,
) -> None:
    """The files of the job, as `dsgen generate` writes them, and the programs that they start."""
    folder.mkdir(parents=True)
    job = spec(folder, target, way, length, kind)
    job["output"]["resume"] = resumes
    plan = dsgen.search(dsgen.load_job(job)).plans[0]
    put(dsgen.render(plan), folder)
    for name, words in {"torchrun": [str(TORCHRUN)], "python": []}.items():
        path = folder / name
        path.write_text(f'#!/bin/bash\nexec {" ".join([sys.executable, *words])} "$@"\n')
        path.chmod(0o755)


def command(folder: Path, target: str) -> list[str]:
    """The words that a machine of the target starts."""
    if target == "shell":
        return ["bash", str(folder / "launch.sh")]
    if target == "kubernetes":
        *_, job = yaml.safe_load_all((folder / "job.yaml").read_text())
        (words,) = {tuple(words) for words in _commands(job)}
        return [word.replace("$$", "$").replace("/etc/dsgen", str(folder)) for word in words]
    if target == "skypilot":
        return ["bash", "-c", yaml.safe_load((folder / "task.yaml").read_text())["run"]]
    text = yaml.safe_load((folder / "job.yml").read_text())["command"]
    places = {"ends": "ends.sh", "ds_config": "ds_config.json"}
    return [
        "sh",
        "-c",
        re.sub(r"\$\{\{inputs\.(\w+)\}\}", lambda m: f"{folder}/{places[m[1]]}", text),
    ]


def _commands(part: object) -> list[list[str]]:
    """The commands of the containers in a Kubernetes job."""
    if isinstance(part, list):
        return [each for item in part for each in _commands(item)]
    if not isinstance(part, dict):
        return []
    own = [[*part["command"], *part.get("args", [])]] if "command" in part else []
    return own + [each for item in part.values() for each in _commands(item)]


class Container:
    """The processes of one start.

    The first of them is number 1, which ignores TERM unless it has a trap.
    """

    def __init__(self, folder: Path, target: str, **variables: str) -> None:
        own = {
            "EVENTS": str(folder / "events"),
            "HOME": str(folder),
            "PATH": f"{folder}:{os.environ['PATH']}",
            "RANK": "0",
            "ENDS_WITH": "1",
            "PET_NNODES": "1",
            "PET_NODE_RANK": "0",
            "SKYPILOT_NODE_IPS": "127.0.0.1",
            "SKYPILOT_NODE_RANK": "0",
            "SKYPILOT_NUM_NODES": "1",
            "SKYPILOT_NUM_GPUS_PER_NODE": "1",
        }
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "unshare",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    *command(folder, target),
                ],
                env={**own, **variables},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""
        own = self._process.pid
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
                os.kill(int(child), number)

    def stop(self, grace_s: float) -> None:
        """End it as the kubelet does: TERM, and KILL when it is there after its grace period."""
        self.kill(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill(signal.SIGKILL)

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return self._process.poll() is not None

    def wait(self, timeout_s: float) -> int:
        """Its status."""
        return self._process.wait(timeout_s)
