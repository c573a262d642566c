"""The matrix products and attention of a step on the roofline: arithmetic against traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..catalog.layers.feed_forward import FeedForward
from ..catalog.layers.mixer import Mixer
from ..job.records import Job
from .activations import local_tokens
from .compute import busiest, core_time
from .layout import Layout
from .products import computes_narrowly, linear
from .stages import vocabulary_rows
from .states import product_bytes, weight_bytes


class Operation(NamedTuple):
    """One operation of a forward pass, on one rank and one micro-batch."""

    name: str
    flops: float
    traffic_bytes: float  #: read and written once: inputs, weights, outputs
    seconds: float


def operations(job: Job, layout: Layout) -> list[Operation]:
    """The operations that differ in shape, of all kinds of layers, as `step_time` counts them.

    **Source** of the roofline: Williams, Waterman and Patterson 2009 (10.1145/1498765.1498785).
    **Assumes** of attention that its scores are not written, as flash attention has it.
    """
    by_name: dict[str, Operation] = {}
    for layer in job.model.averaged.kinds:
        for each in (*_mixer(job, layout, layer.mixer), *_mlp(job, layout, layer.feed_forward)):
            by_name.setdefault(each.name, each)

    tokens, rows = local_tokens(job, layout), vocabulary_rows(job, layout)
    head = _product(job, "output", float(tokens), job.model.hidden, float(rows), narrow=False)
    return [*by_name.values(), head]


def _mixer(job: Job, layout: Layout, mixer: Mixer) -> Iterator[Operation]:
    tokens, sequence = float(local_tokens(job, layout)), job.training.sequence_length
    for product in (*mixer.products, *mixer.latent_products):
        inputs, outputs = product.of_rank(layout.tensor)
        yield _product(job, "attention", tokens, float(inputs), float(outputs))

    flops = tokens * mixer.core_flops(sequence) / layout.tensor
    queries, keys, values = mixer.widths
    moved = weight_bytes(job) * tokens * (queries + keys + 2 * values) / layout.tensor
    seconds = float(core_time(job, layout, mixer).forward_s)
    if flops and seconds:
        yield Operation("attention core", flops, moved, seconds)


def _mlp(job: Job, layout: Layout, part: FeedForward) -> Iterator[Operation]:
    tokens = float(local_tokens(job, layout))
    if part.width:
        for product in part.products(part.width / layout.tensor):
            yield _product(job, "MLP", tokens, float(product.inputs), float(product.outputs))
    if part.experts:
        tensor, cut, held = layout.tensor, layout.expert_tensor, part.experts / layout.expert
        share = (cut / tensor) * part.per_token / held
        rows = float(tokens * busiest(job, layout, part) * share)
        for product in part.products(part.expert_width / cut, part.routed_hidden):
            yield _product(job, "expert", rows, float(product.inputs), float(product.outputs))


def _product(
    job: Job, kind: str, rows: float, inputs: float, outputs: float, *, narrow: bool = True
) -> Operation:
    """A product of rows by a matrix, forward, with its name: `MLP, 8,192 to 28,672`."""
    element = product_bytes(job) if narrow and computes_narrowly(job) else weight_bytes(job)
    moved = element * (rows * inputs + inputs * outputs) + weight_bytes(job) * rows * outputs
    seconds = float(np.asarray(linear(job, rows, inputs, outputs, narrow=narrow).forward_s))
    name = f"{kind}, {inputs:,.0f} to {outputs:,.0f}"
    return Operation(name, 2 * rows * inputs * outputs, float(moved), seconds)
