"""CPUs that accelerate shards on, as workers of tests import it."""

from __future__ import annotations

from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType


def take_cpus_for_gpus() -> None:
    """Have accelerate shard on CPUs, which changes nothing but the kind of its processes.

    It starts plain data parallelism there: state.py, `AcceleratorState`, has no MULTI_CPU among the
    kinds that it shards.
    """
    start_state = PartialState.__init__

    def __init__(self: PartialState, cpu: bool = False, **kwargs: Any) -> None:
        start_state(self, cpu, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = __init__  # type: ignore[method-assign]
