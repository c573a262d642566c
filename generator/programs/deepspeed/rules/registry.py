"""Every rule on DeepSpeed configs."""

from __future__ import annotations

from typing import Final

from . import (
    accumulation,
    activation,
    auto,
    autocast,
    batch,
    choices,
    compile,
    compression,
    data,
    data_types,
    elastic,
    experts,
    nvme,
    offload,
    one_bit,
    optimizer,
    optimizer_params,
    parallel,
    parse,
    pipeline,
    precision,
    rates,
    relations,
    running,
    scheduler,
    types,
    zenflow,
    zero,
    zero_advice,
    zero_limits,
    zeropp,
)

_PARSER: Final = (parse, types, auto, batch, relations, choices, elastic, compression)
_PRECISION: Final = (precision, data_types, autocast)
_ZERO: Final = (zero, zero_advice, zero_limits, zeropp, offload, nvme, zenflow)
_OPTIMIZER: Final = (one_bit, optimizer, optimizer_params, scheduler, rates, accumulation)
_OTHERS: Final = (pipeline, parallel, experts, activation, compile, data, running)
MODULES: Final = (*_PARSER, *_PRECISION, *_ZERO, *_OPTIMIZER, *_OTHERS)
