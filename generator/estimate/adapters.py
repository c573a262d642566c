"""LoRA: the layers that get adapters, the parameters that are trained, the frozen base's memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ..catalog.layers.mixer import Projection
from ..catalog.layers.stack import Layer
from ..catalog.model import Model
from ..job.records import Job
from .layout import LayoutLike
from .model_size import over_layers, parameter_count
from .stages import StageContents

ALL_LINEAR, ATTENTION = "all-linear", "attention"
#: Readers of the normalised input of attention: one tensor, which all of their adapters share.
_READ_INPUT = frozenset({"q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa"})
#: Families of transformers 5.23 whose linear layers have Llama's names and are all that `modules`
#: can name: no fused queries, keys and values, no router of torch's Linear
#: (models/<model_type>/modeling_*.py).
_FAMILIES = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "cohere",
        "cohere2",
        "granite",
        "olmo2",
        "olmo3",
        "seed_oss",
        "smollm3",
        "ernie4_5",
        "ernie4_5_moe",
        "mixtral",
        "olmoe",
        "qwen3_moe",
        "gpt_oss",
        "minimax_m2",
        "glm4_moe",
        "deepseek_v2",
        "deepseek_v3",
        "kimi_k2",
        "solar_open",
        "hy_v3",
        "mimo_v2_flash",
        "mellum",
        "gemma4_text",
    }
)
#: Of these, the families whose routers are torch's Linear, which all-linear would name as well.
_LINEAR_ROUTERS = frozenset({"gemma4_text"})
#: Bytes of a NF4 weight: 4 bits, and 8/64 + 32/(64 × 256) of its block's twice quantized scale.
#: **Source**: QLoRA (2305.14314 sec 3, Double Quantization: blocks of 64 and of 256).
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8


#: Megatron's linear layers that get adapters, by the layers of a model that each joins. Source:
#: NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/lora.py:96-98 @ v0.6.0.
FUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}
#: Those that read the normalised input of attention or of the feed-forward.
_READ_NORMS: Final = ("linear_qkv", "linear_fc1")


def has_known_modules(model: Model) -> bool:
    """Tell a model whose linear layers have known names: those of Llama."""
    has_linear_routers = model.experts > 0 and model.family in _LINEAR_ROUTERS
    return model.family in _FAMILIES and not has_linear_routers


def module_names(job: Job) -> tuple[str, ...]:
    """Names for `target_modules`, in the layers' order."""
    kinds = job.model.averaged.kinds
    return tuple(dict.fromkeys(p.name for layer in kinds for p in adapted(job, layer)))


def text_modules(job: Job) -> str | None:
    """The pattern for `target_modules` where checkpoints hold encoders of images or sound as well,
    whose layers may have the same names: it leaves theirs out. None for models of text alone.

    peft stops on Gemma 4's vision encoder, whose `q_proj` is no torch Linear.
    **Source**: transformers 5.23, models/gemma4/modeling_gemma4.py, Gemma4ClippableLinear; peft
    0.21, tuners/tuners_utils.py, check_target_module_exists (a text is a whole match).
    """
    if not job.model.family.endswith("_text"):  # of a text part, as transformers names its config
        return None
    return rf"(?!.*(vision|audio)).*\.({'|'.join(module_names(job))})"


def is_fused(job: Job) -> bool:
    """Tell adapters of Megatron's fused linear layers."""
    return job.framework.adapters is not None and job.framework.adapters.of_fused


def fused_modules(modules: Collection[str]) -> tuple[str, ...]:
    """Megatron's linear layers that `training.lora.modules` names, each by any that it joins."""
    if ALL_LINEAR in modules:
        return tuple(FUSED)
    if ATTENTION in modules:
        return ("linear_qkv", "linear_proj")
    return tuple(name for name, joined in FUSED.items() if not set(joined).isdisjoint(modules))


def each_module(modules: Collection[str]) -> tuple[str, ...]:
    """The layers of a model that `training.lora.modules` names, one by one."""
    if set(modules) & {ALL_LINEAR, ATTENTION}:
        return tuple(name for layer in fused_modules(modules) for name in FUSED[layer])
    return tuple(modules)


def named_modules(fused: Collection[str]) -> tuple[str, ...]:
    """Megatron's linear layers in the words of `training.lora.modules`."""
    for word in (ALL_LINEAR, ATTENTION):
        if set(fused) == set(fused_modules((word,))):
            return (word,)
    return tuple(name for layer in fused for name in FUSED[layer])


def _fused(layer: Layer) -> Iterator[Projection]:
    """The fused linear layers of attention, and of the MLP that every token meets."""
    parts = {each.name: each for each in layer.mixer.projections}
    if "q_proj" in parts:
        output = parts.pop("o_proj")
        yield Projection("linear_qkv", layer.hidden, sum(each.outputs for each in parts.values()))
        yield Projection("linear_proj", output.inputs, output.outputs)
    yield from _of_mlp(layer, layer.feed_forward.width)


def _of_mlp(layer: Layer, width: int, hidden: int | None = None) -> Iterator[Projection]:
    if width:
        products = layer.feed_forward.products(width, hidden)
        for name, product in zip(("linear_fc1", "linear_fc2"), products, strict=True):
            yield Projection(name, product.inputs, product.outputs)


def adapted_of_expert(job: Job, layer: Layer) -> tuple[Projection, ...]:
    """The linear layers of one routed expert that have adapters."""
    lora, adapters, part = job.training.lora, job.framework.adapters, layer.feed_forward
    if lora is None or adapters is None or adapters.of_experts == "none" or not part.experts:
        return ()
    layers = _of_mlp(layer, part.expert_width, part.routed_hidden)
    return tuple(each for each in layers if each.name in fused_modules(lora.modules))


def adapters_of_experts(job: Job, layer: Layer, experts: Any) -> Any:
    """How many adapters each linear layer of experts has, where a rank holds `experts` of them.

    **Source**: NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/lora.py:132, :156 @ v0.6.0
    (`share_expert_adapters`); modelscope/ms-swift swift/megatron/utils/utils.py, where grouped
    linear layers have an adapter an expert.
    """
    adapters = job.framework.adapters
    shares = adapters is None or adapters.of_experts == "shared"
    return np.minimum(1, layer.feed_forward.experts) + 0 * experts if shares else experts


def adapted(job: Job, layer: Layer) -> tuple[Projection, ...]:
    """The linear layers that have adapters in one layer of the model, routed experts' left out."""
    lora = job.training.lora
    if lora is None:
        return ()
    if is_fused(job):
        return tuple(each for each in _fused(layer) if each.name in fused_modules(lora.modules))
    if lora.modules == (ALL_LINEAR,):
        return layer.projections
    if lora.modules == (ATTENTION,):
        return layer.mixer.projections
    return tuple(p for p in layer.projections if p.name in lora.modules)


def adapter_parameters(job: Job) -> int:
    """Parameters that are trained: rank × (inputs + outputs) of each adapted layer.

    **Source**: LoRA (2106.09685 sec 4.1); peft 0.21, tuners/lora/layer.py, update_layer: two
    matrices without bias.
    """
    rank = job.training.lora.rank if job.training.lora else 0

    def widths_of(layer: Layer) -> int:
        count = int(adapters_of_experts(job, layer, layer.feed_forward.experts))
        return widths(adapted(job, layer)) + count * widths(adapted_of_expert(job, layer))

    return rank * over_layers(job.model, widths_of)


def widths(layers: Collection[Projection]) -> int:
    """Inputs and outputs of linear layers: an adapter's parameters for each rank."""
    return sum(each.inputs + each.outputs for each in layers)


def trained(job: Job, layout: LayoutLike, held: StageContents) -> StageContents:
    """The part of a rank's parameters that has gradients and states: with LoRA, the adapters.

    Both matrices of Megatron's adapters are cut by tensor parallelism, as their layer is.
    **Source**: NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/utils.py:1006-1056 @ v0.6.0.
    **Assumes** that peft's have neither tensor nor pipeline parallelism, which rules demand.
    """
    lora = job.training.lora
    if lora is None:
        return held
    if not is_fused(job):
        whole = adapter_parameters(job) + 0 * held.shared
        return replace(held, shared=whole, experts=0 * held.experts)

    shared, experts = 0.0 * held.shared, 0.0 * held.experts
    for layer, count in zip(job.model.averaged.kinds, held.kinds, strict=True):
        shared = shared + count * widths(adapted(job, layer)) / layout.tensor
        of_experts = adapters_of_experts(job, layer, layer.feed_forward.experts / layout.expert)
        of_experts = of_experts * widths(adapted_of_expert(job, layer)) / layout.expert_tensor
        experts = experts + count * of_experts
    return replace(held, shared=lora.rank * shared, experts=lora.rank * experts)


def has_4bit_base(job: Job) -> bool:
    """Tell a job whose frozen weights are quantized to 4 bits."""
    return job.training.lora is not None and job.training.lora.base == "4bit"


def base_share(job: Job) -> float:
    """Bytes of the frozen base over those of as many weights in the type that is computed with.

    bitsandbytes quantizes every linear layer but the head; tables, norms and biases stay as they
    are (transformers 5.23, quantizers/base.py, get_modules_to_not_convert).
    """
    if not has_4bit_base(job):
        return 1.0
    small = NF4_BYTES / (4 if job.training.precision == "fp32" else 2)
    quantized = over_layers(job.model, lambda layer: dequantized_weights(job, layer))
    return 1.0 - (1.0 - small) * quantized / parameter_count(job.model)


def dequantized_weights(job: Job, layer: Layer) -> int:
    """Weights of a layer that each pass turns back from 4 bits before it multiplies with them."""
    return sum(p.inputs * p.outputs for p in layer.projections) if has_4bit_base(job) else 0


def unsaved_elements(job: Job, layer: Layer) -> int:
    """Elements a token that a layer keeps less with LoRA than in full training.

    A frozen linear layer needs its weight only, to pass the gradient on; an adapter keeps the
    layer's input, once for all that read it, and what its first matrix makes of it. An eager
    RMSNorm with a frozen weight doesn't keep what it multiplies with it. Dropout of adapters is 0,
    peft's default. **Assumes** that routed experts keep as much as ever.
    """
    if job.training.lora is None:
        return 0
    layers, part = adapted(job, layer), layer.feed_forward
    names = {name for p in layers for name in FUSED.get(p.name, (p.name,))}
    less = 0 if names & _READ_INPUT else layer.hidden
    if not part.experts:
        less += 0 if names & {"gate_proj", "up_proj"} else layer.hidden
    if "down_proj" not in names:
        less += part.width
    if not job.fuses_kernels and layer.norm.kind == "rmsnorm":
        less += layer.norms * layer.hidden + layer.mixer.normed_elements
    return less - job.training.lora.rank * len(layers)


def gathered_elements(job: Job, layout: LayoutLike, layer: Layer) -> Any:
    """Elements a token of normalised inputs that adapters keep, and the layers themselves don't.

    Tensor ranks gather these along the sequence: Megatron's layers keep a part, adapters all.

    **Source**: NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/lora.py:103-110 @ v0.6.0
    (`sequence_parallel_input_regather`, which is off).
    """
    if not is_fused(job):
        return 0.0
    inputs = sum(p.inputs for p in adapted(job, layer) if p.name in _READ_NORMS)
    return inputs * layout.sequence_parallel * (1 - 1 / layout.tensor)
