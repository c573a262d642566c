"""LoRA: the layers that get adapters, the parameters that are trained, the frozen base's memory."""

from __future__ import annotations

from dataclasses import replace

from ..catalog.layers.mixer import Projection
from ..catalog.layers.stack import Layer
from ..catalog.model import Model
from ..job.records import Job
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
    }
)
#: Bytes of a NF4 weight: 4 bits, and 8/64 + 32/(64 × 256) of its block's twice quantized scale.
#: **Source**: QLoRA (2305.14314 sec 3, Double Quantization: blocks of 64 and of 256).
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8


def has_known_modules(model: Model) -> bool:
    """Tell a model whose linear layers have known names: those of Llama."""
    return model.family in _FAMILIES


def module_names(job: Job) -> tuple[str, ...]:
    """Names for `target_modules`, in the layers' order."""
    kinds = job.model.averaged.kinds
    return tuple(dict.fromkeys(p.name for layer in kinds for p in adapted(job, layer)))


def adapted(job: Job, layer: Layer) -> tuple[Projection, ...]:
    """The linear layers of a layer that have adapters."""
    lora = job.training.lora
    if lora is None:
        return ()
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
    return rank * over_layers(
        job.model, lambda layer: sum(p.inputs + p.outputs for p in adapted(job, layer))
    )


def trained(job: Job, held: StageContents) -> StageContents:
    """Select of a rank's parameters those with gradients and states: the adapters, with LoRA.

    **Assumes** that LoRA has neither tensor nor pipeline parallelism, which rules demand.
    """
    if job.training.lora is None:
        return held
    return replace(held, shared=adapter_parameters(job) + 0 * held.shared, experts=0 * held.experts)


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
    """Elements a token that a layer keeps less than in full training; adapters keep one for each
    rank more.

    A frozen linear layer needs its weight only, to pass the gradient on; an adapter keeps the
    layer's input, once for all that read it, and what its first matrix makes of it. An eager
    RMSNorm with a frozen weight doesn't keep what it multiplies with it. Dropout of adapters is 0,
    peft's default. **Assumes** that routed experts keep as much as ever.
    """
    if job.training.lora is None:
        return 0
    layers, part = adapted(job, layer), layer.feed_forward
    names = {p.name for p in layers}
    less = 0 if names & _READ_INPUT else layer.hidden
    if not part.experts:
        less += 0 if names & {"gate_proj", "up_proj"} else layer.hidden
    if "down_proj" not in names:
        less += part.width
    if not job.fuses_kernels and layer.norm.kind == "rmsnorm":
        less += layer.norms * layer.hidden
    return less - job.training.lora.rank * len(layers)
