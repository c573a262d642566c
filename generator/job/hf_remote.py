"""Types whose code is published beside their weights and not in transformers, for the reader by
keys: what that code decides and no key says.

Source: modeling_bailing_moe_v2.py of ant-yy/Ling-V2; configuration_mimo_v2.py of MiMo-V2.5;
bailing_moe.py and bailing_moe_linear.py of mlx-lm 0.32; modeling_openpangu_dense.py of
openPangu-Embedded-7B, as printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..catalog.layers.lightning import NormalisedLightning
from ..text.wording import show
from .hf_by_keys import FULL, LOCAL, Traits
from .hf_keys import KeyReader
from .hf_shape import Shape

_LINEAR: Final = "linear_attention"


def _ring_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """Whole attention in the last layer of each group, and in those after the last whole group."""
    layers, group = shape["layers"], read.integer("layer_group_size", default=4)
    whole = layers // group * group
    return [FULL if (i + 1) % group == 0 or i >= whole else _LINEAR for i in range(layers)]


def _ring_mixer(read: KeyReader, shape: Shape) -> NormalisedLightning:
    """Lightning attention with as many keys and values as queries, whatever `head_dim` says."""
    width = max(1, shape["hidden"] // shape["heads"])
    return NormalisedLightning(hidden=shape["hidden"], heads=shape["heads"], head_dim=width)


def _mimo_kinds(read: KeyReader, shape: Shape) -> list[str]:
    """Windows where a pattern has 1, for each layer."""
    listed = read.config.get("hybrid_layer_pattern")
    read.ignore("hybrid_layer_pattern", "hybrid_block_size")
    layers: int = shape["layers"]
    if listed is None:
        period = read.optional_integer("hybrid_block_size") or 1
        return [LOCAL if (i + 1) % period else FULL for i in range(layers)]
    marks = listed if isinstance(listed, list) else []
    if len(marks) != layers or any(mark not in (0, 1) for mark in marks):
        message = f"hybrid_layer_pattern is {show(listed)}: not 0 or 1 for each of {layers} layers"
        read.report("hybrid_layer_pattern", message, "write 1 for local layers, and 0 for others")
        return [FULL] * layers
    return [LOCAL if mark else FULL for mark in marks]


def _mimo_attention(read: KeyReader, shape: Shape, kind: str, index: int) -> Shape:
    """Local layers of MiMo-V2.5 have widths of their own, by keys that begin with swa_."""
    is_local = kind == LOCAL
    read.ignore(*_OF_LOCAL)
    values = read.optional_integer("v_head_dim") or shape["head_dim"]
    sinks = f"add_{'swa' if is_local else 'full'}_attention_sink_bias"
    attention = {"v_head_dim": values, "sinks": read.boolean(sinks, False)}
    if not is_local:
        return attention
    width = read.optional_integer("swa_head_dim") or shape["head_dim"]
    return {
        "heads": read.optional_integer("swa_num_attention_heads") or shape["heads"],
        "kv_heads": read.optional_integer("swa_num_key_value_heads") or shape["kv_heads"],
        "head_dim": width,
        "v_head_dim": read.optional_integer("swa_v_head_dim") or width,
        "sinks": attention["sinks"],
    }


_OF_LOCAL: Final = (
    "swa_head_dim",
    "swa_num_attention_heads",
    "swa_num_key_value_heads",
    "swa_v_head_dim",
    "add_swa_attention_sink_bias",
    "add_full_attention_sink_bias",
)

REMOTE: Final[Mapping[str, Traits]] = {
    "bailing_moe": Traits(),
    "bailing_moe_v2": Traits(),
    "bailing_moe_linear": Traits(
        kinds=_ring_kinds,
        mixers={_LINEAR: _ring_mixer},
        idle="group_norm_size linear_silu",
    ),
    "mimo_v2": Traits(
        output_bias=False,
        kinds=_mimo_kinds,
        attention=_mimo_attention,
        experts={"router_scores": "sigmoid"},
        idle="attention_chunk_size attention_projection_layout",
    ),
    "PanguEmbedded": Traits(mlp_bias=False),
}
