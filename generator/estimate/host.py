"""The host: seconds that it launches kernels for, and what CUDA graphs take from them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..catalog.layers.stack import Layer
from ..job.records import Job
from .adapters import adapted, adapted_of_expert
from .layout import LayoutLike
from .products import Passes, computes_narrowly
from .rates import rates

#: Kernels of routing: top-k, sort, permutation and its inverse.
ROUTING_KERNELS: Final = 12
#: Kernels of an adapter's forward pass: two products, the scale, the sum (peft 0.21,
#: tuners/lora/layer.py, forward).
_ADAPTER_KERNELS: Final = 4
#: Kernels that the host launches for each expert and product of a group, forward and backward: the
#: product, and the input's and the weight's. In 8 or 4 bits what came in is quantized first; the
#: scales of all experts are laid out for their products at once, and weights are quantized once a
#: step. **Source**: Transformer Engine 2.9 and 2.14, pytorch/module/grouped_linear.py (forward,
#: backward), csrc/extensions/gemm.cpp (te_general_grouped_gemm), csrc/extensions/cast.cpp
#: (split_quantize, multi_tensor_quantize_impl), common/swizzle/swizzle.cu (64 tensors a kernel).
_WIDE_KERNELS: Final = (1, 2)
_NARROW_KERNELS: Final = (2, 3)


def start_s(job: Job) -> float:
    """Seconds that a streaming kernel loses to its start and tail.

    A graph's kernels follow one another without the host: the part of a launch is gone.
    """
    constants = rates(job)
    launch = constants.launch_s if job.training.replays_iteration else 0.0
    return float(max(constants.kernel_start_s - launch, 0.0))


def with_launches(
    job: Job, layout: LayoutLike, layer: Layer, device: Passes, experts: Passes
) -> Passes:
    """Seconds of a layer's passes, of which the device needs `device`, and `experts` of these for
    the products of routed experts.

    The host runs ahead of the device, so that the slower of both decides. Before experts it reads
    back how many tokens came, and launches nothing meanwhile. It is then no longer ahead, so that
    the experts and the rest are each as slow as the slower of both. The backward pass knows the
    sizes, but waits alike where the forward pass of another micro-batch runs between its own parts.
    A graph of whole iterations is launched once, without a read; graphs of attention and routing
    leave the experts to the host.

    **Source**: Megatron-LM core/transformer/moe/token_dispatcher.py (tokens_per_expert to the
    host, synchronized before what needs them), core/models/common/model_chunk_schedule_plan.py,
    core/transformer/cuda_graphs.py @ core_v0.19.0.
    """
    if job.training.replays_iteration:
        return device
    constants, part = rates(job), layer.feed_forward
    kernels = job.framework.kernels_per_layer / 2 * layer.blocks
    if layer.streams:
        kernels = kernels + layer.streams.kernels * layer.mixings
    if part.experts:
        kernels = kernels + ROUTING_KERNELS
    if job.training.cuda_graphs == "partial":
        kernels = 0.0
    if job.training.lora is not None:
        adapters = len(adapted(job, layer)) + len(adapted_of_expert(job, layer))
        kernels = kernels + _ADAPTER_KERNELS * adapters
    rest = kernels * constants.launch_s
    if not part.experts:
        forward, backward = (each * constants.launch_s for each in _token_by_token(job, layer))
        return Passes(
            np.maximum(device.forward_s, rest + forward),
            np.maximum(device.backward_s, 2 * rest + backward),
        )

    forward, backward = _of_experts(job, layout, layer)
    ahead = np.maximum(device.backward_s, 2 * rest + backward)
    apart = _apart(device.backward_s, experts.backward_s, 2 * rest, backward)
    return Passes(
        _apart(device.forward_s, experts.forward_s, rest, forward),
        np.where(layout.expert_overlap, apart, ahead),
    )


def _token_by_token(job: Job, layer: Layer) -> tuple[int, int]:
    """Kernels of loops over the tokens of a sequence, forward and backward."""
    forward = sum(part.stepwise[0] for part in layer.mixer.parts)
    backward = sum(part.stepwise[1] for part in layer.mixer.parts)
    return forward * job.training.sequence_length, backward * job.training.sequence_length


def _of_experts(job: Job, layout: LayoutLike, layer: Layer) -> tuple[Any, Any]:
    """Seconds of the host for the products of a rank's experts, forward and backward."""
    held = layer.feed_forward.experts / layout.expert
    forward, backward = _NARROW_KERNELS if computes_narrowly(job) else _WIDE_KERNELS
    each_s = rates(job).expert_launch_s
    if job.engine.experts == "whole" and job.cluster.accelerator.generation.grouped_products:
        # Transformers' `grouped_mm` starts one kernel for all experts. Source: transformers 5.23,
        # modeling_utils.py (get_correct_experts_implementation), integrations/moe.py.
        held, each_s = 1, rates(job).launch_s
    return 2 * held * forward * each_s, 2 * held * backward * each_s


def _apart(device_s: Any, experts_s: Any, rest_launches_s: Any, expert_launches_s: Any) -> Any:
    """Seconds of a pass whose experts, and what is around them, wait for their own launches."""
    rest = np.maximum(device_s - experts_s, rest_launches_s)
    return rest + np.maximum(experts_s, expert_launches_s)
