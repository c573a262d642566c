"""Muon: the momentum of each matrix made orthogonal, and what that takes of memory and time.

Matrices of layers, each expert's by itself, have one fp32 momentum beside their fp32 copy; the
embedding, the head, norms and biases are left to Adam. Where data ranks share the states, each has
those of whole matrices: a part of a matrix can't be made orthogonal alone.

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
#: The first release whose Muon shares its states over ranks and overlaps their gradients' reduction
#: with the backward pass.
#: Source: NVIDIA/Megatron-LM megatron/training/arguments.py:1181 @ core_v0.16.1, :1486 @
#: core_v0.17.1, :1560 @ core_v0.18.2.
FIRST_SHARED: Final = (0, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One rank's part of a weight matrix, and how many such matrices a layer has on that rank."""

    count: Any
    rows: Any
    columns: Any
    of_experts: bool

    @property
    def elements(self) -> Any:
        """Of one such matrix."""
        return self.rows * self.columns


def is_muon(job: Job) -> bool:
    """Tell whether the job's optimizer is Muon."""
    return job.training.optimizer == NAME


def optimizer_bytes(
    job: Job,
    layout: LayoutLike,
    held: StageContents,
    bytes_per_parameter: Any,
    sharers: tuple[Any, Any],
) -> Any:
    """Bytes of a stage's optimizer states on the rank that has most.

    `bytes_per_parameter` are those of a matrix. `sharers` are the ranks that share the states of
    all but experts, and those of experts.

    Matrices are dealt to the ranks whole, the largest first. So the fullest rank has the largest
    matrix, or an even share of all where that is more.
    """
    are_shared = layout.zero_stage >= 1
    sharers_of_all, sharers_of_experts = sharers

    # Norms and biases are among them: they are few.
    in_layers = held.shared - held.ends
    largest = _largest_elements(job, layout, of_experts=False)
    dealt = np.where(are_shared, np.maximum(in_layers / sharers_of_all, largest), in_layers)

    largest_of_experts = _largest_elements(job, layout, of_experts=True)
    dealt_experts = np.where(
        are_shared & (held.experts > 0),
        np.maximum(held.experts / sharers_of_experts, largest_of_experts),
        held.experts,
    )
    # Adam keeps a second moment of the embedding and the head.
    ends = held.ends / np.where(are_shared, sharers_of_all, 1)
    return bytes_per_parameter * (dealt + dealt_experts) + (bytes_per_parameter + FP32) * ends


def orthogonal_s(job: Job, layout: LayoutLike, layer_counts: tuple[Any, ...]) -> Any:
    """Seconds in which a rank makes the momenta of its matrices orthogonal.

    `layer_counts`: how many layers of each kind of the model its stage has.

    **Symbols**: of a matrix of m rows and n columns, m the smaller, each of five steps multiplies
    m·n·m, m·m·m and m·m·n. **Assumes** products of 16-bit numbers, as `--muon-fp32-matmul-prec
    medium` makes them, of each rank's own part of a matrix (`--muon-tp-mode blockwise`).
    """
    are_shared = layout.zero_stage >= 1
    total: Any = 0.0
    for of_experts in (False, True):
        sharers = expert_replicas(layout) if of_experts else layout.data * layout.context
        work_s: Any = 0.0
        longest_s: Any = 0.0
        for layer, count in zip(job.model.averaged.kinds, layer_counts, strict=True):
            for matrix in _matrices(layout, layer):
                if matrix.of_experts != of_experts:
                    continue
                matrix_s = _matrix_s(job, matrix)
                work_s = work_s + count * matrix.count * matrix_s
                longest_s = np.maximum(longest_s, matrix_s * (count > 0))
        shared_s = np.maximum(work_s / sharers, longest_s)
        total = total + np.where(are_shared, shared_s, work_s)
    return total


def _matrix_s(job: Job, matrix: Matrix) -> Any:
    """Seconds of one matrix's iteration."""
    small = np.minimum(matrix.rows, matrix.columns)
    large = np.maximum(matrix.rows, matrix.columns)
    products = ((small, large, small), (small, small, small), (small, small, large))
    return STEPS * sum(linear(job, *sizes, narrow=False).forward_s for sizes in products)


def _matrices(layout: LayoutLike, layer: Layer) -> Iterator[Matrix]:
    """The matrices of one rank's part of a layer; those that take the same input, such as gate and
    up, are one.
    """
    for product in (*layer.mixer.products, *layer.mixer.latent_products):
        inputs, outputs = product.of_rank(layout.tensor)
        yield Matrix(count=1, rows=outputs, columns=inputs, of_experts=False)

    part = layer.feed_forward
    if part.width:
        width = part.width / layout.tensor
        yield Matrix(count=1, rows=part.ups * width, columns=part.hidden, of_experts=False)
        yield Matrix(count=1, rows=part.hidden, columns=width, of_experts=False)
    if part.experts:
        count = part.experts / layout.expert
        width = part.expert_width / layout.expert_tensor
        hidden = part.routed_hidden
        yield Matrix(count=count, rows=part.ups * width, columns=hidden, of_experts=True)
        yield Matrix(count=count, rows=hidden, columns=width, of_experts=True)


def _largest_elements(job: Job, layout: LayoutLike, *, of_experts: bool) -> Any:
    """Elements of the largest matrix of any layer: of experts, or of all else."""
    largest: Any = 0.0
    for layer in job.model.averaged.kinds:
        for matrix in _matrices(layout, layer):
            if matrix.of_experts == of_experts:
                largest = np.maximum(largest, matrix.elements)
    return largest
