"""How a plan is written as Megatron-LM's options.

`Planned` is a plan with all that the rows of the options' table read; it is `p` in functions and in
the table. A row whose value takes more than a field of it has a function here.

**Source**: NVIDIA/Megatron-LM core_v0.16.1, megatron/training/arguments.py and
megatron/core/transformer/transformer_config.py.
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
from ...estimate.states import is_precision_aware
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
    """A plan, with what several options are derived from."""

    plan: Plan
    job: Job
    model: Model
    attention: SoftmaxAttention
    mlp: FeedForward
    latent: Latent  #: to be read only where the model has latent attention
    delta: GatedDelta  #: to be read only where the model has the gated delta rule
    routed: Experts  #: to be read only where the model has experts
    training: Training
    layout: Layout
    cut: Split  #: how layers are dealt to stages
    chunks: tuple[int, ...]  #: layers of each chunk, where chunks are listed
    #: letters of layers, where the model is written as a pattern of them; empty: it isn't
    pattern: str
    state_space: Mamba2  #: to be read only where the model has such a mixer
    #: layers of the last stage, where the layout doesn't say them and they differ from the others'
    last_stage: int | None
    #: the dispatcher that sends a token to each rank once: deepep or hybridep; None: a copy is sent
    #: for each of its experts
    backend: str | None
    aware: bool  #: whether the optimizer is precision-aware: its states have types of their own
    tokenizer: str | None  #: the type of the tokenizer
    exit_minutes: int | None  #: after which the run saves and exits by itself
    #: whether positions are rotary; then all options for them are written, as the defaults are
    #: another model's
    rotary: bool
    #: whether heads share keys and values, in another attention than the latent one
    grouped_queries: bool
    linear_bias: bool  #: whether the projections other than query, key and value carry biases
    #: whether experts of a layer are one product: refused below compute capability 8
    grouped_gemm: bool
    fsdp: bool  #: whether gradients or parameters are sharded, which is Megatron FSDP's work
    full: bool  #: whether all activations are recomputed
    offloads: bool  #: whether the optimizer is on the host
    unpinned: bool  #: whether the host has room for it only outside of pinned buffers
    narrow_gradients: bool  #: whether gradients are summed over replicas in bf16
    saves: bool  #: whether the job names a folder for checkpoints

    @property
    def yarn(self) -> Yarn | None:
        """YaRN's numbers, where they are written as options; None otherwise."""
        yarn = self.model.yarn
        if yarn is None or not yarn.is_plain or not self.rotary or self.latents:
            return None
        has_options = self.job.framework.writes_yarn and self.has("--yarn-beta-fast")
        return yarn if has_options and not self.training.mtp_depths else None

    @property
    def latent_yarn(self) -> Yarn | None:
        """YaRN's numbers, where latent attention has them as options; None otherwise."""
        yarn = self.model.yarn if self.rotary and self.latents else None
        return yarn if yarn is not None and not yarn.unsaid_of_latents else None

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
        """Whether the release's Muon refuses to overlap the reduction of gradients."""
        return self.muon and self.job.megatron_version < FIRST_SHARED

    @property
    def listed(self) -> bool:
        """Whether the options list which layers each model chunk has."""
        return bool(self.chunks) or bool(self.pattern and self.has(PATTERN))

    def has(self, option: str) -> bool:
        """Return whether the release of Megatron-LM that the job is for has an option."""
        table = option_table(LM)
        row = table.get(option)
        return row is not None and row.is_in(table.index(self.job.megatron_version))


def but(value: V, default: V) -> V | None:
    """The value of an option that isn't written where it has its default."""
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
    """The window of sliding attention as Megatron writes it, keys before and after: `(127,0)`."""
    spans = [mixer.span for mixer in p.model.attentions]
    slides = any(span.window and not span.chunked for span in spans)
    return f"({p.model.sliding_window - 1},0)" if slides and p.model.sliding_window else None


def windowed_layers(p: Planned) -> str | None:
    """The pattern of the layers with a window; None where all have it, or none does."""
    windowed = p.model.stack.where(lambda layer: _span(layer).window is not None)
    if not window(p) or len(windowed) == p.model.layers:
        return None
    return layer_pattern(p.model.layers, windowed)


def _span(layer: Layer) -> Span:
    """The keys that a layer's queries see; all of them for other mixers than softmax attention."""
    return layer.mixer.span if isinstance(layer.mixer, SoftmaxAttention) else Span()


def layers_without_rotary(p: Planned) -> str | None:
    """The pattern of the layers without positions, in a model whose others have rotary ones."""
    without = p.model.stack.where(_lacks_rotary) if p.rotary else ()
    return layer_pattern(p.model.layers, without) if without else None


def _lacks_rotary(layer: Layer) -> bool:
    return isinstance(layer.mixer, SoftmaxAttention) and not layer.mixer.rotary


def gates_elements(p: Planned) -> bool:
    """Whether attention's output is multiplied with a gate, element by element."""
    return isinstance(p.attention, GroupedQuery) and p.attention.gate == "elements"


def delta_layers(p: Planned) -> str | int:
    """The layers with the gated delta rule: a period or a pattern.

    A number n says that the last of each n layers has attention. Otherwise a list has 1 for each
    layer with the rule.

    **Source**: core_v0.16.1 megatron/core/transformer/transformer_config.py, linear_attention_freq.
    """
    with_rule = p.model.stack.where(lambda layer: not isinstance(layer.mixer, SoftmaxAttention))
    layers = range(p.model.layers)
    with_attention = (index for index in layers if index not in with_rule)
    period = next(with_attention, p.model.layers - 1) + 1
    if with_rule == tuple(index for index in layers if (index + 1) % period):
        return period
    return layer_pattern(p.model.layers, with_rule)


def hybrid_pattern(p: Planned) -> str:
    """The letters of all layers, with | between model chunks; / begins each prediction depth.

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
    """The pattern of the layers with experts; None where all have them, or another option says."""
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
    first, *middle, last = p.chunks
    text = "E" + "t" * first
    for size, equal_chunks in groupby(middle):
        count = len(list(equal_chunks))
        layers = f"t*{size}" if size > 2 else "t" * size
        text += f"(|{layers})*{count}" if count > 1 else f"|{layers}"
    return f"{text}|{'t' * last}{'m' * p.training.mtp_depths}L"


def context_exchange(p: Planned) -> str | None:
    """How context ranks exchange data: heads (`a2a`), or heads and then a ring (`a2a+p2p`).

    None for a ring of keys and values, which is the default.
    """
    heads = p.layout.context_heads
    if heads == 1:
        return None
    return "a2a" if heads == p.layout.context else "a2a+p2p"


def recompute_method(p: Planned) -> str | None:
    """How whole layers are recomputed: some of them, or groups of all."""
    if not p.full:
        return None
    return "block" if p.layout.recompute_layers else "uniform"


def recomputed_modules(p: Planned) -> tuple[str, ...] | None:
    """The modules that are recomputed; None for the default."""
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


def masters_recipe(p: Planned) -> str | None:
    """The recipe of fp8 beside weights that are kept in 4 bits alone.

    With the default one, delayed scaling, the precision-aware optimizer would have to hold copies
    of the weights, which it can't.

    **Source**: Megatron-LM megatron/core/optimizer/optimizer_config.py:404-410
    (use_precision_aware_optimizer_no_fp8_or_ds_fp8) and distrib_optimizer.py:403-447 @
    core_v0.19.0; NVIDIA-NeMo/Megatron-Bridge v0.6.0 has tensorwise there, too
    (training/mixed_precision.py).
    """
    keeps_4_bits = p.training.precision == "nvfp4" and p.training.fp8_parameters
    return "tensorwise" if keeps_4_bits and is_precision_aware(p.job) else None


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
    """The length of the run in sequences; None where it is given in steps.

    With a batch ramp-up, Megatron takes sequences alone (megatron/training/arguments.py:765 @
    core_v0.16.1).
    """
    training = p.job.training
    if training.batch_ramp is None:
        return None
    tokens = training.duration_tokens or DEFAULT_STEPS * training.tokens_per_step
    return max(1, -int(-tokens // training.sequence_length))


def is_scheduled(p: Planned) -> bool:
    """Whether the batch grows by a schedule, as releases with an option for one take it."""
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
    ramp = p.training.batch_ramp
    if ramp is None:
        return None
    increments = max(1, (p.layout.global_batch - ramp.start) // ramp.increment)
    entries = []
    for index in range(increments + 1):
        sequences = -(-ramp.samples * index // increments)  # rounded up
        tokens = sequences * p.training.sequence_length
        entries.append(f"{tokens}:{ramp.start + ramp.increment * index}")
    return " ".join(entries)


def data_cache(p: Planned) -> str | None:
    """The folder for the indices of samples, beside the checkpoints.

    Megatron's default is a folder beside the data, which is often read-only.

    **Source**: Megatron-LM core_v0.16.1, megatron/core/datasets/gpt_dataset.py:411-414;
    Megatron-DeepSpeed 4efb479d, megatron/data/gpt_dataset.py:367-373.
    """
    folder = p.job.output.checkpoints
    if folder is None or not p.job.data.path:
        return None
    return f"{bindings(p.job).word(folder)}/data-cache"
