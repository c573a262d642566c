"""A model: embedding, layers by kind in their order, head; and the maker of usual models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any, Final, TypeVar

from ..dataclass import dataclass
from .layers.dense import Dense
from .layers.experts import Experts
from .layers.feed_forward import FeedForward
from .layers.grouped import GroupedQuery
from .layers.latent import Latent
from .layers.mixer import Mixer
from .layers.nothing import NoFeedForward, NoMixer
from .layers.softmax import SoftmaxAttention, Span
from .layers.stack import Layer, Norm, Stack, averaged
from .layers.streams import Streams
from .yarn import Yarn

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer's shape: everything that parameters, FLOPs and memory depend on, and nothing
    else.

    Properties such as `heads` are facts of its layers: they are those of the first kind of layer
    that has them. Where files say little of a model, such a fact is unknown, and reading it raises
    `AttributeError`.
    """

    name: str
    family: str  #: Hugging Face `model_type`
    hidden: int
    stack: Stack  #: the layers
    norm: Norm  #: of the final norm, and of layers
    vocab: int
    max_positions: int
    tied_embeddings: bool
    position_embedding: str  #: learned | rotary | alibi | none
    position_rows: int = 0  #: rows of the learned position table
    rotary_base: float = 10000.0  #: theta of rotary positions
    rotary_fraction: float = 1.0  #: share of a head's dimensions that rotates
    #: none | llama3 | yarn | longrope | linear | dynamic, as Hugging Face's `rope_type`
    rotary_scaling: str = "none"
    rotary_scaling_factor: float = 1.0
    yarn: Yarn | None = None  #: YaRN's numbers, where they are known
    causal: bool = True  #: False for encoders such as BERT
    final_norms: int = 1
    embedding_norms: int = 0
    embedding_width: int | None = None  #: when not `hidden` (OPT-350m), projected in and out
    head_bias: bool = False
    type_rows: int = 0  #: token-type embedding rows (BERT)
    #: learned elements of further tables and vectors beside the token table (Gemma 4's embeddings
    #: of each layer)
    table_elements: int = 0
    pooler: bool = False
    mlm_head: bool = False  #: BERT's dense + norm before the decoder
    dropout: float = 0.0  #: hidden dropout probability
    attention_dropout: float = 0.0
    #: Width that its config gives a dense MLP, also where no layer has one: Megatron asks for it
    ffn: int
    #: depths of multi-token prediction that its config has; transformers doesn't build them
    depths: int = 0
    #: numbers of the layers that those of one depth are like; empty: the last layer
    depth_like: tuple[int, ...] = ()
    #: whether transformers has no other attention for it than `eager`
    is_eager: bool = False
    #: parts that change neither size nor cost, as in messages: "scaled embeddings"
    extras: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: what its config holds beyond what is planned
    source: str

    @property
    def averaged(self) -> Stack:
        """The layers as estimates take them: those that differ in windows or rotation alone are one
        kind.
        """
        return averaged(self.stack)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.stack)

    @property
    def streams(self) -> Streams | None:
        """The streams of its hidden state, where it has several."""
        return self.stack.kinds[0].streams

    @property
    def state_width(self) -> int:
        """Elements of what one layer hands to the next."""
        return self.streams.width if self.streams else self.hidden

    @property
    def pattern(self) -> str:
        """Letters of its layers, as Nemotron's configs and Megatron have them; else empty.

        There is a pattern where some layers are state spaces (`M`) and some attention (`*`), and
        each layer is a mixer or a feed-forward alone.
        """
        letters = [layer.letters for layer in self.stack.kinds]
        if not {"M", "*"}.issubset(letters) or any(len(each) != 1 for each in letters):
            return ""
        return "".join(letters[place] for place in self.stack.order)

    @property
    def depth_places(self) -> tuple[int, ...]:
        """Numbers of the layers that those of one depth of multi-token prediction are like.

        **Source**: Megatron-LM core_v0.16.1, megatron/core/models/gpt/gpt_layer_specs.py,
        get_gpt_mtp_block_spec: the last layer's spec.
        """
        return self.depth_like or (self.layers - 1,)

    @property
    def depth_layers(self) -> tuple[Layer, ...]:
        """The layers of one depth of multi-token prediction."""
        order = self.stack.order
        return tuple(self.stack.kinds[order[place]] for place in self.depth_places)

    @property
    def depth_parameters(self) -> int:
        """Parameters of one depth: its layers, a product that joins the state with the next token's
        embedding, and norms of both and of what it returns; table and head are the model's.

        **Source**: Megatron-LM core_v0.16.1, megatron/core/transformer/multi_token_prediction.py,
        MultiTokenPredictionLayer.
        """
        joining = 2 * self.hidden * self.hidden
        norms = 3 * self.norm.each * self.hidden
        return joining + norms + sum(layer.parameters for layer in self.depth_layers)

    @property
    def depth_matrix_parameters(self) -> int:
        """Parameters of the products of one token at one depth, its use of the head included."""
        layers = sum(layer.active_matrix_parameters for layer in self.depth_layers)
        joining, head = 2 * self.hidden * self.hidden, self.vocab * self.hidden
        return layers + joining + head

    def part(self, kind: type[Part]) -> Part | None:
        """The first mixer or feed-forward of a kind, where a layer has one."""
        parts = (part for layer in self.stack.kinds for part in layer.parts)
        return next((part for part in parts if isinstance(part, kind)), None)

    @property
    def attentions(self) -> tuple[SoftmaxAttention, ...]:
        """Its kinds of softmax attention."""
        return tuple(mixer for mixer in self.mixers if isinstance(mixer, SoftmaxAttention))

    @property
    def widest_head(self) -> int:
        """Elements of queries and keys in the widest head of its softmax attention."""
        return max((mixer.head_dim for mixer in self.attentions), default=0)

    @property
    def softmax(self) -> SoftmaxAttention:
        """Its softmax attention, the first kind."""
        if not self.attentions:
            raise AttributeError(f"{self.name} has no softmax attention")
        return self.attentions[0]

    @property
    def heads(self) -> int:
        """Heads of its attention."""
        return self.softmax.heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.softmax.kv_heads

    @property
    def head_dim(self) -> int:
        """Elements of a head's queries and keys."""
        return self.softmax.head_dim

    @property
    def attention_sinks(self) -> bool:
        """Whether a layer's heads have learned sinks."""
        return any(mixer.sinks for mixer in self.attentions)

    @property
    def sliding_window(self) -> int | None:
        """Tokens of local attention, where a layer has it."""
        windows = (mixer.span.window for mixer in self.attentions)
        return next((window for window in windows if window is not None), None)

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The mixers of its kinds of layers, each by itself."""
        return tuple(mixer for layer in self.stack.kinds for mixer in layer.mixer.parts)

    @property
    def tensor_cuts(self) -> tuple[tuple[str, int], ...]:
        """What tensor ranks share evenly of its mixers, each with its name."""
        return _distinct(mixer.tensor_cuts for mixer in self.mixers)

    @property
    def context_cuts(self) -> tuple[tuple[str, int], ...]:
        """What context ranks share evenly that exchange heads, each with its name."""
        return _distinct(mixer.context_cuts for mixer in self.mixers)

    @property
    def mlp_cuts(self) -> tuple[tuple[str, int], ...]:
        """What tensor ranks share evenly of dense MLPs, each with its name."""
        return _distinct(layer.feed_forward.tensor_cuts for layer in self.stack.kinds)

    @property
    def expert_cuts(self) -> tuple[tuple[str, int], ...]:
        """What tensor ranks share evenly of experts, each with its name."""
        return _distinct(layer.feed_forward.expert_cuts for layer in self.stack.kinds)

    @property
    def exchanged_heads(self) -> tuple[tuple[int, int], ...]:
        """Heads of queries, and of keys and values, that context ranks can exchange."""
        return tuple(dict.fromkeys(m.exchanged_heads for m in self.mixers))

    @property
    def keeps_ring(self) -> bool:
        """Whether a mixer asks that some context ranks exchange keys and values in a ring."""
        return any(mixer.keeps_ring for mixer in self.mixers)

    @property
    def feed_forward(self) -> FeedForward:
        """What its layers do with each token: those with experts, where there are any."""
        parts = [layer.feed_forward for layer in self.stack.kinds]
        dense = next((part for part in parts if part.width), parts[0])
        return next((part for part in parts if part.experts), dense)

    @property
    def experts(self) -> int:
        """Routed experts of a layer that has them; 0 for a dense model."""
        return self.feed_forward.experts

    @property
    def experts_per_token(self) -> int:
        """Routed experts that one token is sent to."""
        return self.feed_forward.per_token

    @property
    def moe_ffn(self) -> int:
        """Width of one routed expert."""
        return self.feed_forward.expert_width

    @property
    def linear_bias(self) -> bool:
        """Whether the attention's output, or an MLP, has biases."""
        parts = [(layer.mixer, layer.feed_forward) for layer in self.stack.kinds]
        return any(m.output_bias or part.bias or part.expert_bias for m, part in parts)

    @property
    def has_state(self) -> bool:
        """Whether a mixer carries a state, or a convolution, along the sequence."""
        return any(mixer.has_state for mixer in self.mixers)

    @property
    def is_sparse(self) -> bool:
        """Whether attention meets keys that are chosen or compressed."""
        return any(mixer.is_sparse for mixer in self.mixers)

    @property
    def needing_whole(self) -> tuple[str, ...]:
        """What the mixers are called that mix other tokens of a part of the sequence alone."""
        return tuple(dict.fromkeys(mixer.called for mixer in self.mixers if mixer.needs_whole))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Python packages that the fast kernels of its mixers come from.

        Without them other code runs, which keeps much more memory.
        """
        return tuple(dict.fromkeys(name for mixer in self.mixers for name in mixer.kernels))

    @property
    def dense_layers(self) -> int:
        """How many layers have no experts."""
        pairs = zip(self.stack.kinds, self.stack.counts, strict=True)
        return sum(count for layer, count in pairs if not layer.feed_forward.experts)


def _distinct(cuts: Iterable[Mapping[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(dict.fromkeys(cut for named in cuts for cut in named.items()))


#: The sizes that `model_of` takes for each part: their names there, and the part's fields.
_ATTENTION: Final = {
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_dim",
    "qkv_bias": "qkv_bias",
    "output_bias": "output_bias",
    "qk_norm": "qk_norm",
    "attention_sinks": "sinks",
    "attention_gate": "gate",
    "attention_gate_bias": "gate_bias",
}
_LATENT: Final = (
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
_MLP: Final = {"gated_mlp": "gated", "activation": "activation", "activation_clamp": "clamp"}
_ROUTED: Final = {
    "experts": "experts",
    "experts_per_token": "per_token",
    "moe_ffn": "expert_width",
    "shared_ffn": "width",
    "shared_experts": "shared_experts",
    "shared_gate": "shared_gate",
    "expert_bias": "expert_bias",
    "latent": "latent",
    "router_bias": "router_bias",
    "router_groups": "router_groups",
    "router_top_groups": "router_top_groups",
    "router_scale": "router_scale",
    "router_scores": "router_scores",
    "router_normalizes": "router_normalizes",
    "router_loss": "router_loss",
    "router_loss_by_sequence": "router_loss_by_sequence",
}


def model_of(
    *,
    layers: int,
    norm: str = "rmsnorm",
    norm_epsilon: float = 1e-5,
    norms_per_layer: int = 2,
    norm_after: bool | Sequence[bool] = False,
    mixers: Sequence[Mixer | None] | None = None,
    feed_forwards: Sequence[FeedForward | None] | None = None,
    sliding_window: int | None = None,
    chunked_attention: bool = False,
    masked_attention: bool = False,
    full_attention_layers: Iterable[int] = (),
    layers_without_rotary: Iterable[int] = (),
    mlp_bias: bool = False,
    dense_layers: int = 0,
    dense_layer_indices: Iterable[int] = (),
    **sizes: Any,
) -> Model:
    """The model of these sizes, whose layers are alike but for windows, positions and experts.

    `mixers` and `feed_forwards` are those of each layer, `None` for the usual one; a layer with one
    of them alone has half the norms. Some layers have no `sliding_window`, some no rotary
    positions; where attention has a mask of its own (`masked_attention`), kernels compute what it
    hides. With experts, `dense_layers` have an MLP instead: the first ones, or those of
    `dense_layer_indices`. Other names are fields of `Model` and of the parts: raises `TypeError`
    for any other.
    """
    is_rotary = sizes["position_embedding"] == "rotary"
    usual_mixer = _mixer_maker(
        sizes, window=sliding_window, chunked=chunked_attention, masked=masked_attention
    )
    dense, experts = _usual_feed_forwards(sizes, mlp_bias)
    norm_of_layers = Norm(kind=norm, epsilon=norm_epsilon)
    layer_of = _layer_maker(sizes["hidden"], norm_of_layers, norms_per_layer)
    without_window = frozenset(full_attention_layers)
    without_rotary = frozenset(layers_without_rotary)
    without_experts = frozenset(dense_layer_indices or range(dense_layers))

    def layer_at(place: int) -> Layer:
        mixer = mixers[place] if mixers is not None else None
        if mixer is None:
            rotary = is_rotary and place not in without_rotary
            mixer = usual_mixer(place not in without_window, rotary)
        part = feed_forwards[place] if feed_forwards is not None else None
        if part is None:
            part = dense if place in without_experts else experts
        is_after = norm_after if isinstance(norm_after, bool) else norm_after[place]
        return layer_of(mixer, part, is_after)

    has_exceptions = bool(without_window or without_rotary or without_experts)
    are_alike = mixers is None and feed_forwards is None and isinstance(norm_after, bool)
    if are_alike and not has_exceptions:
        # Nothing depends on the place: one layer stands for up to MOST_LAYERS.
        all_layers: Iterable[Layer] = repeat(layer_at(0), layers)
    else:
        all_layers = map(layer_at, range(layers))
    return Model(stack=Stack.of(all_layers), norm=norm_of_layers, **sizes)


def _mixer_maker(
    sizes: dict[str, Any], *, window: int | None, chunked: bool, masked: bool
) -> Callable[[bool, bool], Mixer]:
    """Take the sizes of attention out of `sizes`, and return a function that makes it.

    The function takes whether a layer has the window, and whether it is rotary; it makes each mixer
    once.
    """
    hidden, causal = sizes["hidden"], sizes.get("causal", True)
    attention = _taken(sizes, _ATTENTION)
    latent = {name: sizes.pop(name) for name in _LATENT if name in sizes}

    @cache
    def mixer_of(has_window: bool, rotary: bool) -> Mixer:
        tokens = window if has_window else None
        span = Span(
            causal=causal,
            window=tokens,
            chunked=chunked and tokens is not None,
            masked=masked,
        )
        shape = {"hidden": hidden, "span": span, "rotary": rotary, **attention}
        return Latent(**shape, **latent) if latent.get("kv_lora_rank") else GroupedQuery(**shape)

    return mixer_of


def _usual_feed_forwards(sizes: dict[str, Any], bias: bool) -> tuple[FeedForward, FeedForward]:
    """Take the sizes of feed-forwards out of `sizes`, and return the dense one and the usual one.

    The usual one has experts, or is the dense one where the model has none.
    """
    mlp = {"hidden": sizes["hidden"], **_taken(sizes, _MLP)}
    routed = _taken(sizes, _ROUTED)
    dense = Dense(width=sizes["ffn"], bias=bias, **mlp)
    return dense, Experts(bias=bias, **mlp, **routed) if routed.get("experts") else dense


def _layer_maker(
    hidden: int, norm: Norm, norms_per_layer: int
) -> Callable[[Mixer, FeedForward, bool], Layer]:
    """A function that makes the layer of a mixer and a feed-forward, each layer once."""
    # By identity: the hash of a part is that of all its sizes, and a model repeats its parts.
    made: dict[tuple[int, int, bool], Layer] = {}

    def layer_of(mixer: Mixer, part: FeedForward, norm_after: bool) -> Layer:
        key = id(mixer), id(part), norm_after
        if key not in made:
            is_alone = isinstance(mixer, NoMixer) or isinstance(part, NoFeedForward)
            made[key] = Layer(
                hidden=hidden,
                mixer=mixer,
                feed_forward=part,
                norm=norm,
                norms=norms_per_layer // 2 if is_alone else norms_per_layer,
                norm_after=norm_after,
            )
        return made[key]

    return layer_of


def _taken(sizes: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Take sizes out of `sizes`, and give them the names of a part's fields."""
    return {field: sizes.pop(name) for name, field in names.items() if name in sizes}
