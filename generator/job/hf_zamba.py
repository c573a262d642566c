"""Zamba and Zamba2: layers of Mamba, and among them places of a few blocks of attention and MLP
whose weights all these places share.

Source: the configuration and modeling modules of huggingface/transformers 5.23, models/zamba and
models/zamba2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from ..catalog.layers.grouped import GroupedQuery
from ..catalog.layers.mamba import Mamba1, Mamba2
from ..catalog.layers.mixer import Mixer
from ..catalog.layers.nothing import NoFeedForward
from ..catalog.layers.places import OfPlace
from ..catalog.layers.side_by_side import SideBySide
from ..catalog.layers.stack import Layer
from .hf_by_keys import FULL, Traits
from .hf_keys import KeyReader
from .hf_shape import Shape

_MAMBA, _PLACE = "linear_attention", "hybrid"
#: Norms of a place: of the hidden state and the embedding side by side, as wide as two; before the
#: MLP; and before Mamba, which alone is its own.
_NORMS, _SHARED_NORMS = 4, 3

_Reader = Callable[[KeyReader, Shape], Mixer]


def _inner_heads(read: KeyReader, shape: Shape, default: int) -> tuple[int, int]:
    """Mamba's inner width, and its heads, which divide it."""
    width = read.integer("mamba_expand", default=2) * shape["hidden"]
    heads = read.integer("n_mamba_heads", default=default)
    if width % heads:
        message = f"n_mamba_heads is {heads}, which doesn't divide the inner width of {width}"
        read.report("n_mamba_heads", message, None)
    return width, heads


def _mamba_1(read: KeyReader, shape: Shape) -> Mixer:
    width, heads = _inner_heads(read, shape, 2)
    automatic = read.config.get("mamba_dt_rank") in (None, "auto")
    if automatic:
        read.ignore("mamba_dt_rank")
    return Mamba1(
        hidden=shape["hidden"],
        width=width,
        heads=heads,
        state=read.integer("mamba_d_state", default=16),
        step_rank=ceil(shape["hidden"] / 16) if automatic else read.integer("mamba_dt_rank"),
        kernel=read.integer("mamba_d_conv", default=4),
        conv_bias=read.boolean("mamba_conv_bias", True),
        bias=read.boolean("mamba_proj_bias", False),
        fused=False,
    )


def _mamba_2(read: KeyReader, shape: Shape) -> Mixer:
    width, heads = _inner_heads(read, shape, 8)
    bias = read.boolean("add_bias_linear", False)
    groups = read.integer("mamba_ngroups", default=1)
    if heads % groups:
        message = f"mamba_ngroups is {groups}, which doesn't divide the {heads} heads of Mamba"
        read.report("mamba_ngroups", message, f"set mamba_ngroups: {heads}")
    return Mamba2(
        hidden=shape["hidden"],
        heads=heads,
        head_dim=max(1, width // heads),
        groups=groups,
        state=read.integer("mamba_d_state", default=64),
        chunk=read.integer("chunk_size", default=256),
        kernel=read.integer("mamba_d_conv", default=4),
        bias=bias,
        output_bias=bias,
    )


def _wide_attention(read: KeyReader, shape: Shape) -> GroupedQuery:
    """Attention to the hidden state and the embedding side by side."""
    hidden, wide = shape["hidden"], 2 * shape["hidden"]
    read.others |= {"attention_hidden_size"}
    taken = read.optional_integer("attention_hidden_size") or wide
    if taken != wide:
        message = f"attention_hidden_size is {taken}, but attention takes {wide} elements a token"
        read.report("attention_hidden_size", message, f"set attention_hidden_size: {wide}")
    return GroupedQuery(
        hidden=hidden,
        inputs=wide,
        heads=shape["heads"],
        kv_heads=shape["kv_heads"],
        head_dim=read.optional_integer("head_dim") or max(1, wide // shape["heads"]),
        rotary=shape["position_embedding"] == "rotary",
    )


def _place_1(read: KeyReader, shape: Shape) -> Mixer:
    attention, mamba = _wide_attention(read, shape), _mamba_1(read, shape)
    of_place = OfPlace(hidden=shape["hidden"], inputs=attention.taken)
    return SideBySide(hidden=shape["hidden"], mixers=(attention, mamba, of_place))


def _place_2(read: KeyReader, shape: Shape) -> Mixer:
    hidden, attention = shape["hidden"], _wide_attention(read, shape)
    wide = attention.taken
    adapts = read.boolean("use_shared_attention_adapter", False)
    if adapts and not attention.widths.queries == attention.widths.keys == wide:
        message = (
            "use_shared_attention_adapter is true, but adapters as wide as the attention's input, "
            f"{wide}, can't be added to queries of {attention.widths.queries} and keys of "
            f"{attention.widths.keys}"
        )
        read.report("use_shared_attention_adapter", message, "set it to false")
    of_place = OfPlace(
        hidden=hidden,
        inputs=wide,
        rank=read.integer("adapter_rank", default=128),
        attention=adapts,
        outputs=2 * shape["ffn"],
    )
    return SideBySide(hidden=hidden, mixers=(attention, _mamba_2(read, shape), of_place))


def _of_no_kind(mamba: _Reader) -> _Reader:
    """Whole attention, which the classes take for Mamba."""

    def read_mixer(read: KeyReader, shape: Shape) -> Mixer:
        message = f"layers_block_type has {FULL}, which is no kind of layer of this model_type"
        read.report("layers_block_type", message, f"name each layer {_MAMBA} or {_PLACE}")
        return mamba(read, shape)

    return read_mixer


def _kinds_1(read: KeyReader, shape: Shape) -> list[str]:
    """A place in the third layer, and then in one of each period."""
    period = read.integer("attn_layer_period", default=6)
    offset = read.integer("attn_layer_offset", default=4, low=0)
    first = [_MAMBA, _MAMBA, _PLACE]
    rest = [_PLACE if i % period == offset else _MAMBA for i in range(shape["layers"] - 3)]
    return _counted(read, shape, [*first, *rest])


def _kinds_2(read: KeyReader, shape: Shape) -> list[str]:
    """Those of 54 layers, whatever the number of layers is."""
    runs = (6, 5, 5, 5, 5, 5, 5, 4, 3)
    kinds = [kind for run in runs for kind in (*[_MAMBA] * run, _PLACE)]
    return _counted(read, shape, [*kinds, _MAMBA, _MAMBA])


def _counted(read: KeyReader, shape: Shape, kinds: list[str]) -> list[str]:
    """The usual kinds, which have to be as many as layers."""
    layers: int = shape["layers"]
    if len(kinds) != layers:
        message = f"num_hidden_layers is {layers}, but without a list there are {len(kinds)} layers"
        hint = f"set num_hidden_layers: {len(kinds)}, or write layers_block_type"
        read.report("num_hidden_layers", message, hint)
    return [*kinds, *[_MAMBA] * layers][:layers]


def _stack(read: KeyReader, shape: Shape, layers: Sequence[Layer]) -> Iterator[Layer]:
    """Mamba alone, and places: the first ones hold the weights of one block each, the others use
    these by turns.
    """
    blocks = read.integer("num_mem_blocks", default=1) if read.knows("num_mem_blocks") else 1
    if not shape["tied_embeddings"]:
        message = "tie_word_embeddings is false: transformers then ties no weights of layers either"
        read.report(
            "tie_word_embeddings",
            f"{message}, and such models are not modelled",
            "set tie_word_embeddings: true",
        )
    alone, places = NoFeedForward(hidden=shape["hidden"]), 0
    for layer in layers:
        if not isinstance(layer.mixer, SideBySide):
            yield replace(layer, norms=1, feed_forward=alone)
            continue
        place = replace(layer, norms=_NORMS)
        places += 1
        if places > blocks:
            shared = (layer.mixer.mixers[0], layer.feed_forward)
            place = replace(place, borrowed=shared, borrowed_norms=_SHARED_NORMS)
        yield place


def _mixers(mamba: _Reader, place: _Reader) -> Mapping[str, _Reader]:
    """Readers of kinds of layers, with older names."""
    return {_MAMBA: mamba, "mamba": mamba, _PLACE: place, FULL: _of_no_kind(mamba)}


#: Initial values, choices of code, and what the classes reckon themselves.
_IDLE: Final = (
    "time_step_min time_step_max time_step_floor use_mamba_kernels num_logits_to_keep "
    "attention_hidden_size kv_channels mamba_headdim num_query_groups "
    "hybrid_layer_ids"
)

ZAMBA: Final[Mapping[str, Traits]] = {
    "zamba": Traits(
        rounds_heads=True,
        mlp_bias=False,
        positions="none",
        kinds=_kinds_1,
        mixers=_mixers(_mamba_1, _place_1),
        stack=_stack,
        idle=f"{_IDLE} attn_layer_period attn_layer_offset hidden_mamba_act use_associative_scan",
    ),
    "zamba2": Traits(
        rounds_heads=True,
        mlp_bias=lambda read, shape: read.boolean("add_bias_linear", False),
        positions=lambda read, shape: "rotary" if read.boolean("use_mem_rope", False) else "none",
        kinds=_kinds_2,
        mixers=_mixers(_mamba_2, _place_2),
        stack=_stack,
        fields=lambda read, shape: (
            {"max_positions": 16384} if read.boolean("use_long_context", False) else {}
        ),
        idle=f"{_IDLE} use_conv_bias use_mem_eff_path adapter_rank use_shared_attention_adapter "
        "num_mem_blocks rope_parameters",
    ),
}
