"""Time of LoRA's adapters, and of weights in 4 bits, beside a frozen layer's own products."""

from __future__ import annotations

from typing import Any

from ..job.records import Job
from .adapters import NF4_BYTES, adapted, dequantized_weights
from .products import Passes, linear
from .states import weight_bytes

#: Kernels of an adapter's forward pass: two products, the scale, the sum (peft 0.21, tuners/lora/layer.py, forward).
_KERNELS = 4


def adapter_products(job: Job, tokens: Any, *, moe: bool) -> tuple[Passes, tuple[Any, Any]]:
    """Products of a layer's adapters, and device memory traffic beside: forward, backward.

    An adapter's result is scaled (one read, one written) and added (two read, one written); backward, its gradient is
    scaled, and its input's added. Weights in 4 bits are read, and written in 16, before each of the two products that
    need them (bitsandbytes 0.50, autograd/_functions.py, MatMul4Bit). **Assumes** adapters without dropout.
    """
    assert job.training.lora is not None
    rank, element = job.training.lora.rank, weight_bytes(job)
    products = Passes(0.0, 0.0)
    forward = backward = (NF4_BYTES + element) * dequantized_weights(job, moe=moe) + 0.0 * tokens
    for layer in adapted(job, moe=moe):
        products = products + linear(job, tokens, layer.inputs, rank, trained=True)
        products = products + linear(job, tokens, rank, layer.outputs, trained=True)
        forward = forward + tokens * element * 5 * layer.outputs
        backward = backward + tokens * element * (2 * layer.outputs + 3 * layer.inputs)
    return products, (forward, backward)


def adapter_kernels(job: Job, *, moe: bool) -> int:
    """Kernels that a layer's adapters launch in a forward pass."""
    return _KERNELS * len(adapted(job, moe=moe))
