"""What is known to stop a job before it starts, as the first screen says it."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.programs.launching.blockers import blockers

IMAGE = "nvcr.io#nvidia/pytorch:26.06-py3"


def told(target: str = "slurm", *, framework: str = "megatron-lm", **keys: Any) -> str:
    """All that is said of a job on two nodes."""
    cluster = keys.pop("cluster", "nvidia/dgx-h100")
    job = dsgen.load_job(
        {
            "framework": framework,
            "model": "llama-3-8b",
            "cluster": cluster,
            "nodes": 2,
            "training": {"sequence_length": 4096, "global_batch": 128, "precision": "bf16"},
            "data": {
                "path": "/data/text",
                "tokenizer": {"type": "HuggingFaceTokenizer", "path": "/data/tokenizer"},
            },
            "launch": {"target": target, target: keys},
        }
    )
    return " ".join(blockers(dsgen.estimate(job)))


def test_packages_that_the_image_lacks_are_named() -> None:
    """NVIDIA's image of PyTorch lacks what reads a tokenizer, and other images aren't judged."""
    assert told(container_image=IMAGE) == (
        "Add transformers to the image: NVIDIA's image of PyTorch lacks it."
    )
    assert "Add deepspeed" in told(container_image=IMAGE, framework="deepspeed")
    assert told(container_image="registry.example/mine:1") == ""
    assert told() == ""


@pytest.mark.parametrize("key", ["setup", "modules"])
def test_commands_of_the_host_do_not_reach_a_container(key: str) -> None:
    """What runs before the processes runs outside of their container, which is said with one."""
    commands = {key: ["cuda"]}
    assert f"launch.slurm.{key} runs outside of the container" in told(
        container_image="registry.example/mine:1", **commands
    )
    assert told(**commands) == ""


@pytest.mark.parametrize(
    ("target", "cluster", "keys", "said"),
    [
        (
            "slurm",
            "aws/p5.48xlarge",
            {"container_image": "mine:1"},
            "For efa, the image needs libfabric and aws-ofi-nccl, or NCCL goes through TCP.",
        ),
        ("slurm", "aws/p5.48xlarge", {}, ""),
        (
            "kubernetes",
            "gcp/a3-megagpu-8g",
            {"image": "mine:1"},
            "For ethernet, the image needs /var/lib/tcpxo, mounted from the node and each pod the "
            "sidecar tcpxo-daemon, or NCCL goes through TCP.",
        ),
        ("kubernetes", "nvidia/dgx-h100", {"image": "mine:1"}, ""),
    ],
)
def test_what_a_network_needs_is_named(
    target: str, cluster: str, keys: dict[str, str], said: str
) -> None:
    """A container on EFA or GPUDirect-TCPXO is told what it needs, since NCCL falls back."""
    assert told(target, cluster=cluster, **keys) == said
