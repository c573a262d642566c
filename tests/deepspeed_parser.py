"""DeepSpeed's own parser at any world size, in this process: no GPU, no launch, milliseconds a config.

torch's `fake` process group says that the world has `world` ranks; DeepSpeed then checks the batch as it would there.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")


class _DataMpu:
    """What a script's mpu tells the parser: the number of model replicas."""

    def __init__(self, size: int) -> None:
        self._size = size

    def get_data_parallel_world_size(self) -> int:
        """Model replicas."""
        return self._size


class _SequenceMpu:
    """What the Ulysses set-up of Transformers tells the parser: the sequence-parallel size, and nothing else."""

    def __init__(self, size: int) -> None:
        self._size = size

    def get_sequence_parallel_world_size(self) -> int:
        """Ranks of one Ulysses group."""
        return self._size


@contextmanager
def fake_world(world: int) -> Iterator[None]:
    """A process group of `world` ranks of which this process is rank 0, and all others imaginary."""
    import sys

    import deepspeed.comm
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # It would compile a shared-memory operator for CPU collectives, which nothing here runs.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        yield
    finally:
        deepspeed.comm.comm.cdb = None
        torch.distributed.destroy_process_group()


def parse(config: dict[str, Any], world: int, *, dp: int | None = None, sp: int | None = None) -> Any:
    """The `DeepSpeedConfig` of `config` on `world` ranks; raises what DeepSpeed raises.

    `dp`: the script passes an mpu with so many replicas. `sp`: it passes Transformers' Ulysses mpu. Neither: no mpu.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    mpu = _DataMpu(dp) if dp is not None else _SequenceMpu(sp) if sp is not None else None
    with fake_world(world):
        return DeepSpeedConfig(copy.deepcopy(config), mpu=mpu)


def batch_triple(parsed: Any) -> tuple[int, int, int]:
    """train_batch_size, micro batch and accumulation steps as DeepSpeed will use them."""
    return (
        int(parsed.train_batch_size),
        int(parsed.train_micro_batch_size_per_gpu),
        int(parsed.gradient_accumulation_steps),
    )
