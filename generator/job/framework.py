"""`Framework`: what memory, time, search, rules and files ask of the program that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Code that a run executes, and whose requirements it meets: Megatron-LM's or Megatron-DeepSpeed's own, the parallel
#: layers of either, DeepSpeed's engine, its AutoTP, the Trainer of Transformers, a script of the user's own.
Software = Literal[
    "Megatron-LM", "Megatron-DeepSpeed", "Megatron layers", "DeepSpeed engine", "AutoTP", "Trainer", "own script"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework: its traits, and the function that writes for it."""

    name: str  #: as in a job spec
    software: frozenset[Software]
    script: str  #: the training script that a job starts by default
    only: Mapping[str, str]  #: keys of `training` that have one value here, with the value

    fused: bool  #: fused normalisation, activation and softmax kernels, as in Megatron; eager PyTorch otherwise
    packs_attention: bool  #: queries, keys and values come from one product and stay in its memory
    cross_entropy: str  #: fused | unfused
    shards_vocabulary: bool  #: embedding and head are cut by tensor parallelism
    sums_in_product: bool  #: the weight gradient's product adds to the fp32 sum itself
    loss_traffic_bytes: float  #: device memory traffic a logit of its own loss, forward and backward
    kernels_per_layer: int  #: launches of one layer's forward pass

    program: Callable[[Any], Any] = field(repr=False)  #: from a plan to the program that every process runs

    def runs(self, *software: Software) -> bool:
        """Whether a run executes any of these."""
        return not self.software.isdisjoint(software)

    def __str__(self) -> str:
        return self.name


Frameworks = Mapping[str, Framework]  #: by name
