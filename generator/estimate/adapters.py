"""LoRA: the linear layers that get adapters, what is trained, and what the frozen base takes and doesn't keep."""

from __future__ import annotations

from collections.abc import Iterable

from ..catalog.records import Model
from ..dataclass import dataclass
from ..job.records import Job
from . import model_size
from .stages import StageParameters

ALL_LINEAR, ATTENTION = "all-linear", "attention"
_MLP = ("gate_proj", "up_proj", "down_proj")
#: What reads the normalised input of attention: one tensor, which all of their adapters share.
_READ_INPUT = frozenset({"q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa"})
#: Families of transformers 5.23 whose linear layers have Llama's names and are all that `modules` can name: no fused
#: queries, keys and values, no router of torch's Linear (models/<model_type>/modeling_*.py).
# fmt: off
_FAMILIES = frozenset({
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "cohere", "cohere2", "granite",
    "olmo2", "olmo3", "seed_oss", "smollm3", "ernie4_5", "ernie4_5_moe", "mixtral", "olmoe", "qwen3_moe",
    "gpt_oss", "minimax_m2", "glm4_moe", "deepseek_v2", "deepseek_v3", "kimi_k2",
})
# fmt: on
#: Bytes of a NF4 weight: 4 bits, and 8/64 + 32/(64 × 256) of its block's twice quantized scale. **Source**: QLoRA
#: (2305.14314 sec 3, Double Quantization: blocks of 64 and of 256).
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A linear layer as torch's Linear: its module's name, and its widths."""

    name: str
    inputs: int
    outputs: int


def has_known_modules(model: Model) -> bool:
    """Whether the names of the model's linear layers are known: those of Llama."""
    return model.family in _FAMILIES


def projections(model: Model, *, moe: bool) -> tuple[Projection, ...]:
    """Linear layers of one layer with a dense MLP, or with experts: of these, the shared ones.

    Routed experts and their router are tensors of their own in transformers 5.23, no linear layers.
    """
    width = model.shared_ffn if moe else model.ffn
    shapes = ((model.hidden, width), (model.hidden, width), (width, model.hidden)) if width else ()
    return (*_attention(model), *_named(zip(_MLP, shapes, strict=False)))


def _attention(model: Model) -> tuple[Projection, ...]:
    hidden, heads = model.hidden, model.heads
    if not model.is_mla:
        queries, keys = heads * model.head_dim, model.kv_heads * model.head_dim
        shapes = {"q_proj": (hidden, queries), "k_proj": (hidden, keys), "v_proj": (hidden, keys)}
        return _named({**shapes, "o_proj": (queries, hidden)}.items())
    queries = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
    shapes = {"q_proj": (hidden, queries)}
    if model.q_lora_rank:
        shapes = {"q_a_proj": (hidden, model.q_lora_rank), "q_b_proj": (model.q_lora_rank, queries)}
    shapes["kv_a_proj_with_mqa"] = (hidden, model.kv_lora_rank + model.qk_rope_head_dim)
    shapes["kv_b_proj"] = (model.kv_lora_rank, heads * (model.qk_nope_head_dim + model.v_head_dim))
    return _named({**shapes, "o_proj": (heads * model.v_head_dim, hidden)}.items())


def _named(shapes: Iterable[tuple[str, tuple[int, int]]]) -> tuple[Projection, ...]:
    return tuple(Projection(name=name, inputs=k, outputs=n) for name, (k, n) in shapes)


def module_names(job: Job) -> tuple[str, ...]:
    """What `target_modules` has to name, in the layers' order."""
    kinds = [moe for moe in (False, True) if _layers(job.model, moe=moe)]
    return tuple(dict.fromkeys(p.name for moe in kinds for p in adapted(job, moe=moe)))


def adapted(job: Job, *, moe: bool) -> tuple[Projection, ...]:
    """The linear layers with adapters of one layer, with a dense MLP or with experts."""
    lora = job.training.lora
    if lora is None:
        return ()
    if lora.modules == (ALL_LINEAR,):
        return projections(job.model, moe=moe)
    if lora.modules == (ATTENTION,):
        return _attention(job.model)
    return tuple(p for p in projections(job.model, moe=moe) if p.name in lora.modules)


def _layers(model: Model, *, moe: bool) -> int:
    return model_size.moe_layers(model) if moe else model_size.dense_layers(model)


def adapter_parameters(job: Job) -> int:
    """Parameters that are trained: rank × (inputs + outputs) of each adapted layer.

    **Source**: LoRA (2106.09685 sec 4.1); peft 0.21, tuners/lora/layer.py, update_layer: two matrices without bias.
    """
    rank = job.training.lora.rank if job.training.lora else 0
    widths = sum(
        (p.inputs + p.outputs) * _layers(job.model, moe=moe) for moe in (False, True) for p in adapted(job, moe=moe)
    )
    return rank * widths


def trained(job: Job, held: StageParameters) -> StageParameters:
    """Of the parameters that a rank holds, those with gradients and states: the adapters, with LoRA.

    **Assumes** that LoRA has neither tensor nor pipeline parallelism, which rules demand.
    """
    if job.training.lora is None:
        return held
    return StageParameters(shared=adapter_parameters(job) + 0 * held.shared, experts=0 * held.experts)


def base_share(job: Job) -> float:
    """Bytes of the frozen base over those of as many weights in the type that is computed with.

    bitsandbytes quantizes every linear layer but the head; tables, norms and biases stay as they are (transformers
    5.23, quantizers/base.py, get_modules_to_not_convert).
    """
    if job.training.lora is None or job.training.lora.base != "4bit":
        return 1.0
    small = NF4_BYTES / (4 if job.training.precision == "fp32" else 2)
    return 1.0 - (1.0 - small) * _quantized(job.model) / model_size.parameter_count(job.model)


def _quantized(model: Model) -> int:
    return sum(_layers(model, moe=moe) * _weights(projections(model, moe=moe)) for moe in (False, True))


def _weights(layers: Iterable[Projection]) -> int:
    return sum(p.inputs * p.outputs for p in layers)


def dequantized_weights(job: Job, *, moe: bool) -> int:
    """Weights of a layer that each pass turns back from 4 bits before it multiplies with them."""
    four = job.training.lora is not None and job.training.lora.base == "4bit"
    return _weights(projections(job.model, moe=moe)) if four else 0


def unsaved_elements(job: Job, *, moe: bool) -> int:
    """Elements a token that a layer keeps less than in full training; adapters keep one for each rank more.

    A frozen linear layer needs its weight only, to pass the gradient on; an adapter keeps the layer's input, once for
    all that read it, and what its first matrix makes of it. An eager RMSNorm with a frozen weight doesn't keep what it
    multiplies with it. Dropout of adapters is 0, peft's default. **Assumes** that routed experts keep as much as ever.
    """
    if job.training.lora is None:
        return 0
    model, layers = job.model, adapted(job, moe=moe)
    names = {p.name for p in layers}
    less = 0 if names & _READ_INPUT else model.hidden
    if not moe:
        less += 0 if names & {"gate_proj", "up_proj"} else model.hidden
    if "down_proj" not in names:
        less += model.shared_ffn if moe else model.ffn
    if not job.fuses_kernels and model.norm == "rmsnorm":
        less += model.norms_per_layer * model.hidden
    return less - job.training.lora.rank * len(layers)
