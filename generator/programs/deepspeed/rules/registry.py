"""Every rule on DeepSpeed configs."""

from __future__ import annotations

from typing import Final

from . import (
    auto,
    batch,
    choices,
    compile,
    compression,
    data,
    elastic,
    experts,
    offload,
    optimizer,
    optimizer_params,
    parallel,
    precision,
    reported,
    running,
    schedule,
    text,
    zero,
    zero_limits,
)

_PARSER: Final = (text, reported, auto, batch, choices, compression, elastic)
_ENGINE: Final = (precision, zero, zero_limits, offload, optimizer, optimizer_params, schedule)
_OTHERS: Final = (parallel, experts, running, compile, data)
MODULES: Final = (*_PARSER, *_ENGINE, *_OTHERS)
