"""The passes of a micro-batch through the pipeline's stages, as the step time takes them apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..job.records import Job
from . import compute
from .communication import boundary_s
from .layout import Layout
from .repeated import repeated_share
from .stages import stage_layers
from .step_time import BACKWARD_SHARE, per_layer

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How a micro-batch's seconds are spread over stages, and over its forward and its backward pass."""

    stages: Floats  #: of each stage, over those of the slowest
    backward_compute: float  #: share of compute that is the backward pass's
    backward_talk: float  #: share of the communication within layers that is the backward pass's
    send_s: float  #: one send of activations, or of their gradients, to the next stage

    @property
    def pace(self) -> int:
        """The stage that sets the pace."""
        return int(np.argmax(self.stages))


def passes(job: Job, layout: Layout) -> Passes:
    """Of one layout.

    **Source**: the stages of `step_time`: layers, and on the last the head. **Assumes** that the backward pass sends
    what the forward pass sends, and what is recomputed once more.
    """
    parts = per_layer(job, layout)
    layer_s = float(sum(seconds for cause, seconds in parts.items() if cause != "backward"))
    stages = np.arange(layout.pipeline)
    layers = np.asarray(stage_layers(job, layout, stages).layers, float)
    head = float(compute.head_time_s(job, layout)) * (stages == layout.pipeline - 1)
    each = layers * layer_s + head
    slowest = int(np.argmax(each))
    back = layers[slowest] * float(parts["backward"]) + head[slowest] * BACKWARD_SHARE
    again = float(repeated_share(job, layout))
    return Passes(
        stages=each / each[slowest],
        backward_compute=back / (layers[slowest] * float(parts["compute"]) + head[slowest]),
        backward_talk=(1 + again) / (2 + again),
        send_s=float(boundary_s(job, layout)),
    )
