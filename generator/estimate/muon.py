"""Muon: the momentum of each matrix made orthogonal, and what that takes of memory and time.

Matrices of layers, each expert's by itself, have one fp32 momentum beside their fp32 copy; the
embedding, the head, norms and biases are left to Adam. Where states are shared, a rank has whole
matrices, for no part of one can be made orthogonal alone.

**Source**: Keller Jordan, "Muon" (2024); 2502.16982 sec 2; NVIDIA/Megatron-LM
megatron/core/optimizer/emerging_optimizers.py and layer_wise_optimizer.py @ core_v0.19.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..catalog.layers.stack import Layer
from ..dataclass import dataclass
from ..job.records import Job
from .layout import LayoutLike
from .products import linear
from .stages import StageContents, expert_replicas
from .states import FP32

NAME: Final = "muon"
STEPS: Final = 5  #: of Newton and Schulz's iteration (--muon-num-ns-steps)
#: The first release whose Muon shares its states over ranks and reduces gradients meanwhile.
#: Source: NVIDIA/Megatron-LM megatron/training/arguments.py:1181 @ core_v0.16.1, :1486 @
#: core_v0.17.1, :1560 @ core_v0.18.2.
FIRST_SHARED: Final = (0, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A weight of one rank."""

    count: Any  #: of such matrices in a layer
    rows: Any
    columns: Any
    of_experts: bool

    @property
    def elements(self) -> Any:
        """Weights of one of them."""
        return self.rows * self.columns


def is_muon(job: Job) -> bool:
    """Tell whether the job's optimizer is Muon."""
    return job.training.optimizer == NAME


def optimizer_bytes(
    job: Job, layout: LayoutLike, held: StageContents, each: Any, sharers: tuple[Any, Any]
) -> Any:
    """Bytes of a stage's optimizer states on the rank that has most.

    A parameter of a matrix has `each` bytes. `sharers` are the ranks that share the states of all
    but experts, and those of experts.

    A rank has at least the largest matrix, and no more than its share of all else: the longest
    tensors are dealt first.
    """
    are_shared = layout.zero_stage >= 1
    sharers_of_all, sharers_of_experts = sharers

    matrices = held.shared - held.ends
    widest = _widest(job, layout, of_experts=False)
    dealt = np.where(are_shared, np.maximum(matrices / sharers_of_all, widest), matrices)

    widest = _widest(job, layout, of_experts=True)
    dealt_experts = np.where(
        are_shared & (held.experts > 0),
        np.maximum(held.experts / sharers_of_experts, widest),
        held.experts,
    )
    # Adam keeps a second moment of the table and the head.
    ends = held.ends / np.where(are_shared, sharers_of_all, 1)
    return each * (dealt + dealt_experts) + (each + FP32) * ends


def orthogonal_s(job: Job, layout: LayoutLike, kinds: tuple[Any, ...]) -> Any:
    """Seconds in which a rank makes the momenta of its matrices orthogonal.

    `kinds` are the layers of each kind that its stage has.

    **Symbols**: of a matrix of m rows and n columns, m the smaller, each of five steps multiplies
    m·n·m, m·m·m and m·m·n. **Assumes** products of 16-bit numbers, as `--muon-fp32-matmul-prec
    medium` makes them, of each rank's own part of a matrix (`--muon-tp-mode blockwise`).
    """
    are_shared = layout.zero_stage >= 1
    sharers = {False: layout.data * layout.context, True: expert_replicas(layout)}
    total: Any = 0.0
    for of_experts in (False, True):
        work_s: Any = 0.0
        longest_s: Any = 0.0
        for layer, count in zip(job.model.averaged.kinds, kinds, strict=True):
            for matrix in _matrices(layout, layer):
                if matrix.of_experts != of_experts:
                    continue
                matrix_s = _matrix_s(job, matrix)
                work_s = work_s + count * matrix.count * matrix_s
                longest_s = np.maximum(longest_s, matrix_s * (count > 0))
        shared_s = np.maximum(work_s / sharers[of_experts], longest_s)
        total = total + np.where(are_shared, shared_s, work_s)
    return total


def _matrix_s(job: Job, matrix: Matrix) -> Any:
    """Seconds of one matrix's iteration."""
    small = np.minimum(matrix.rows, matrix.columns)
    large = np.maximum(matrix.rows, matrix.columns)
    products = ((small, large, small), (small, small, small), (small, small, large))
    return STEPS * sum(linear(job, *sizes, narrow=False).forward_s for sizes in products)


def _matrices(layout: LayoutLike, layer: Layer) -> Iterator[Matrix]:
    """The matrices of one rank's part of a layer; products that start from one input are one."""
    for product in (*layer.mixer.products, *layer.mixer.latent_products):
        inputs, outputs = product.of_rank(layout.tensor)
        yield Matrix(count=1, rows=outputs, columns=inputs, of_experts=False)

    part = layer.feed_forward
    if part.width:
        width = part.width / layout.tensor
        yield Matrix(count=1, rows=part.ups * width, columns=part.hidden, of_experts=False)
        yield Matrix(count=1, rows=part.hidden, columns=width, of_experts=False)
    if part.experts:
        here = part.experts / layout.expert
        width = part.expert_width / layout.expert_tensor
        wide = part.routed_hidden
        yield Matrix(count=here, rows=part.ups * width, columns=wide, of_experts=True)
        yield Matrix(count=here, rows=wide, columns=width, of_experts=True)


def _widest(job: Job, layout: LayoutLike, *, of_experts: bool) -> Any:
    """Elements of the largest matrix of any layer: of experts, or of all else."""
    most: Any = 0.0
    for layer in job.model.averaged.kinds:
        for matrix in _matrices(layout, layer):
            if matrix.of_experts == of_experts:
                most = np.maximum(most, matrix.elements)
    return most
