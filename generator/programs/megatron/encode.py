"""`Planned`, of which the rows of the table are written, and what takes more than a field of it.

**Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/training/arguments.py and
megatron/core/transformer/ transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from ...catalog.layers.grouped import GroupedQuery
from ...catalog.layers.latent import Latent
from ...catalog.layers.softmax import SoftmaxAttention, Span
from ...dataclass import dataclass
from ...estimate.muon import FIRST_SHARED, is_muon
from ...job.needs import bindings
from ...job.records import Job, Training
from ..program import DEFAULT_STEPS
from .options import LM, option_table

if TYPE_CHECKING:  # for types alone, to save start-up time: these need numpy
    from ...catalog.layers.delta import GatedDelta
    from ...catalog.layers.experts import Experts
    from ...catalog.layers.feed_forward import FeedForward
    from ...catalog.layers.mamba import Mamba2
    from ...catalog.layers.stack import Layer
    from ...catalog.model import Model
    from ...catalog.yarn import Yarn
    from ...estimate.layout import Layout
    from ...estimate.stages import Split
    from ...search.plan import Plan


V = TypeVar("V")
PATTERN: Final = "--hybrid-layer-pattern"
#: The first release with the program and the model for patterns of any layers.
HYBRID_MODEL: Final = (0, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and what is worked out of it once for all options."""

    plan: Plan
    job: Job
    model: Model
    attention: SoftmaxAttention
    mlp: FeedForward
    latent: Latent  #: read where there is one
    delta: GatedDelta  #: read where there is one
    routed: Experts  #: read where there are any
    training: Training
    layout: Layout
    cut: Split  #: how layers are dealt to stages
    chunks: tuple[int, ...]  #: layers of each chunk, where chunks are listed
    #: letters of layers, where the model is written as a pattern of them; empty: it isn't
    pattern: str
    state_space: Mamba2  #: read where there is one
    #: layers of the last stage, where nobody chose them and they are not those of the others
    last_stage: int | None
    #: what sends tokens to ranks once each: deepep or hybridep; None: every copy is sent
    backend: str | None
    aware: bool  #: whether optimizer states have types of their own
    tokenizer: str | None  #: kind of the tokenizer
    exit_minutes: int | None  #: after which the run saves and exits by itself
    #: whether positions are; all their options are then given: the defaults are another model's
    rotary: bool
    #: whether heads share keys and values, and multi-latent attention doesn't make them
    grouped_queries: bool
    linear_bias: bool  #: whether the projections other than query, key and value carry biases
    #: whether experts of a layer are one product: refused below compute capability 8
    grouped_gemm: bool
    fsdp: bool  #: whether gradients or parameters are sharded, which is Megatron FSDP's work
    full: bool  #: whether all activations are computed again
    offloads: bool  #: whether the optimizer is on the host
    narrow_gradients: bool  #: whether gradients are summed over replicas in bf16
    saves: bool  #: whether the job names a folder for checkpoints

    @property
    def yarn(self) -> Yarn | None:
        """Return the numbers of YaRN, where options say them."""
        said = self.rotary and self.model.rotary_scaling == "yarn" and not self.latents
        writes = self.job.framework.writes_yarn and self.has("--yarn-beta-fast")
        return self.model.yarn if said and writes and not self.training.mtp_depths else None

    @property
    def latents(self) -> bool:
        """Return whether attention is latent."""
        return self.model.part(Latent) is not None

    @property
    def muon(self) -> bool:
        """Return whether the optimizer is Muon."""
        return is_muon(self.job)

    @property
    def waits_for_muon(self) -> bool:
        """Return whether Muon of the release refuses gradients that are reduced meanwhile."""
        return self.muon and self.job.megatron_version < FIRST_SHARED

    @property
    def listed(self) -> bool:
        """Whether a list, or a pattern, says which layers each chunk has."""
        return bool(self.chunks) or bool(self.pattern and self.has(PATTERN))

    def has(self, option: str) -> bool:
        """Return whether the release of Megatron-LM that the job is for has an option."""
        table = option_table(LM)
        row = table.get(option)
        return row is not None and row.is_in(table.index(self.job.megatron_version))


def but(value: V, default: V) -> V | None:
    """A value that is left out where it is the default."""
    return None if value == default else value


def layer_pattern(layers: int, chosen: Collection[int]) -> str:
    """Write 1 for the layers `chosen` and 0 for the others, as Megatron reads it.

    Examples are `([0]*3+[1]*58)` and `([1]*5+[0]*1)*8`.
    """
    marks = [int(index in chosen) for index in range(layers)]
    sizes = (size for size in range(1, layers + 1) if layers % size == 0)
    period = next(size for size in sizes if marks == marks[:size] * (layers // size))
    runs = "+".join(f"[{value}]*{len(list(run))}" for value, run in groupby(marks[:period]))
    return f"({runs})" if period == layers else f"({runs})*{layers // period}"


def window(p: Planned) -> str | None:
    """Keys before and after the query's: `(127,0)`."""
    spans = [mixer.span for mixer in p.model.attentions]
    slides = any(span.window and not span.chunked for span in spans)
    return f"({p.model.sliding_window - 1},0)" if slides and p.model.sliding_window else None


def windowed_layers(p: Planned) -> str | None:
    """1 for layers with the window, where some have none."""
    local = p.model.stack.where(lambda layer: _span(layer).window is not None)
    return (
        layer_pattern(p.model.layers, local) if window(p) and len(local) < p.model.layers else None
    )


def _span(layer: Layer) -> Span:
    return layer.mixer.span if isinstance(layer.mixer, SoftmaxAttention) else Span()


def layers_without_rotary(p: Planned) -> str | None:
    """1 for layers without positions, where the others have rotary ones."""
    bare = p.model.stack.where(_is_bare) if p.rotary else ()
    return layer_pattern(p.model.layers, bare) if bare else None


def _is_bare(layer: Layer) -> bool:
    return isinstance(layer.mixer, SoftmaxAttention) and not layer.mixer.rotary


def gates_elements(p: Planned) -> bool:
    """Whether attention's output is multiplied with a gate, element by element."""
    return isinstance(p.attention, GroupedQuery) and p.attention.gate == "elements"


def delta_layers(p: Planned) -> str | int:
    """1 for layers with the gated delta rule, or how many layers have one of attention at the end.

    **Source**: core_v0.16.1 megatron/core/transformer/transformer_config.py, linear_attention_freq.
    """
    chosen = p.model.stack.where(lambda layer: not isinstance(layer.mixer, SoftmaxAttention))
    layers = range(p.model.layers)
    every = next((i + 1 for i in layers if i not in chosen), p.model.layers)
    if chosen == tuple(i for i in layers if (i + 1) % every):
        return every
    return layer_pattern(p.model.layers, chosen)


def hybrid_pattern(p: Planned) -> str:
    """Letters of layers with | between chunks, and those of each depth behind a /.

    **Source**: core_v0.17.1 megatron/core/ssm/mamba_hybrid_layer_allocation.py, core_v0.18.2
    megatron/core/models/hybrid/hybrid_layer_allocation.py; core_v0.16.1 has letters alone.
    """
    from ...estimate.stages import chunk_sizes  # saves start-up time: numpy

    if not p.has(PATTERN):
        return p.pattern
    sizes = chunk_sizes(p.job, p.layout) if p.layout.pipeline > 1 else [len(p.pattern)]
    ends = [0, *accumulate(sizes)]
    chunks = "|".join(p.pattern[start:end] for start, end in pairwise(ends))
    depth = "".join(layer.letters for layer in p.model.depth_layers)
    return chunks + f"/{depth}" * p.training.mtp_depths


def stack_spec(p: Planned) -> tuple[str, str]:
    """The module and the name of the layers' specification.

    **Source**: core_v0.16.1 megatron/core/models/mamba/mamba_layer_specs.py, core_v0.18.2
    megatron/core/models/hybrid/hybrid_layer_specs.py.
    """
    if p.job.megatron_version < HYBRID_MODEL:
        return "megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"
    return "megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"


def expert_layers(p: Planned) -> str | None:
    """1 for layers with experts, where some have none and no pattern says which."""
    if p.pattern:
        return None
    routed = p.model.stack.where(lambda layer: layer.feed_forward.experts > 0)
    return layer_pattern(p.model.layers, routed) if len(routed) < p.model.layers else None


def stage_layout(p: Planned) -> str | None:
    """Write chunks in Megatron-LM's notation.

    E is the embedding, t a layer, m a depth of multi-token prediction, L the loss, and | stands
    between chunks.
    """
    if not p.chunks or p.pattern:
        return None
    text = "E" + "t" * p.chunks[0]
    for size, same in groupby(p.chunks[1:-1]):
        count, layers = len(list(same)), f"t*{size}" if size > 2 else "t" * size
        text += f"(|{layers})*{count}" if count > 1 else f"|{layers}"
    return f"{text}|{'t' * p.chunks[-1]}{'m' * p.training.mtp_depths}L"


def context_exchange(p: Planned) -> str | None:
    """Return the exchange between context ranks.

    It is a ring of keys and values by default, heads (a2a), or both.
    """
    heads = p.layout.context_heads
    return None if heads == 1 else "a2a" if heads == p.layout.context else "a2a+p2p"


def recomputed_modules(p: Planned) -> tuple[str, ...] | None:
    """The modules that are computed again, where they are not the default."""
    labels = tuple(p.layout.recompute_modules.labels)
    return labels if p.layout.recompute.label == "selective" and labels != ("core_attn",) else None


def attention(p: Planned) -> str:
    """The backend of attention.

    Head sizes that differ and learned sinks are not FlashAttention 2's: Transformer Engine picks a
    fused kernel.
    """
    if p.job.training.attention != "flash":
        return "unfused"
    if p.job.training.fp8_attention:  # of cuDNN alone
        return "fused"
    return "auto" if p.model.part(Latent) or p.attention.sinks else "flash"


def fp8_format(p: Planned) -> str | None:
    """The 8-bit numbers of values and gradients.

    Blocks of 32 have a scale each, so that gradients need no wider exponent than values, as
    NVIDIA's own recipes have it; with other recipes they are E5M2. **Source**:
    NVIDIA-NeMo/Megatron-Bridge v0.6.0, training/mixed_precision.py (bf16_with_mxfp8_mixed:
    e4m3; the others: hybrid).
    """
    if p.training.precision != "fp8":
        return None
    return "e4m3" if p.training.fp8_recipe == "mxfp8" else "hybrid"


def multiprocessors(p: Planned) -> int | None:
    """Multiprocessors of HybridEP's kernels, as all of NVIDIA's recipes have them."""
    return 32 if p.backend == "hybridep" else None


def graph_kind(p: Planned) -> str | None:
    """What captures CUDA graphs; before 0.18, that of layers captures whole iterations, too."""
    whole = "full_iteration" if p.has("--cuda-graph-modules") else "local"
    kinds = {"partial": "transformer_engine", "full_iteration": whole}
    return kinds.get(p.training.cuda_graphs)


def graphed_modules(p: Planned) -> tuple[str, ...] | None:
    """Modules with a graph each: all of a dense layer; of one with experts, what is before them."""
    if p.training.replays_iteration and not p.has("--cuda-graph-modules"):
        return ("full_iteration",)
    if p.training.cuda_graphs != "partial":
        return None
    mixers = ("mamba", "attn") if p.model.pattern else ("attn",)
    return (*mixers, "moe_router", "moe_preprocess") if p.model.experts else (*mixers, "mlp")


def samples(p: Planned) -> int | None:
    """Sequences, where the batch ramps up (megatron/training/arguments.py:765 @ core_v0.16.1)."""
    training = p.job.training
    if training.batch_ramp is None:
        return None
    tokens = training.duration_tokens or DEFAULT_STEPS * training.tokens_per_step
    return max(1, -int(-tokens // training.sequence_length))


def is_scheduled(p: Planned) -> bool:
    """Return whether the batch grows by a schedule, for which newer releases have an option."""
    return p.training.batch_ramp is not None and p.has("--step-batch-size-schedule")


def batch_ramp(p: Planned) -> tuple[int, int, int] | None:
    """The start, the increment and the sequences of a batch ramp-up."""
    ramp = p.training.batch_ramp
    return None if ramp is None else (ramp.start, ramp.increment, ramp.samples)


def batch_schedule(p: Planned) -> str | None:
    """The batches of a ramp-up by the tokens from which they hold: `0:32 4194304:64`.

    Each increment lasts as many sequences. **Source**: NVIDIA/Megatron-LM
    megatron/core/num_microbatches_calculator.py:398-433 @ core_v0.16.1, :482-530 @ core_v0.19.0.
    """
    ramp, tokens = p.training.batch_ramp, p.training.sequence_length
    if ramp is None:
        return None
    count = max(1, (p.layout.global_batch - ramp.start) // ramp.increment)
    steps = (
        (-(-ramp.samples * step // count) * tokens, ramp.start + ramp.increment * step)
        for step in range(count + 1)
    )
    return " ".join(f"{threshold}:{batch}" for threshold, batch in steps)


def data_cache(p: Planned) -> str | None:
    """Return the folder of the samples' order, beside the checkpoints.

    Megatron's default is beside the data, which is often read-only.

    **Source**: Megatron-LM core_v0.16.1, megatron/core/datasets/gpt_dataset.py:411-414;
    Megatron-DeepSpeed 4efb479d, megatron/data/gpt_dataset.py:367-373.
    """
    folder = p.job.output.checkpoints
    return (
        f"{bindings(p.job).word(folder)}/data-cache"
        if folder is not None and p.job.data.path
        else None
    )
