"""Types whose code is published beside their weights and not in transformers, for the reader by
keys: what that code decides and no key says.

Source: modeling_bailing_moe_v2.py of ant-yy/Ling-V2; bailing_moe.py and bailing_moe_linear.py of
mlx-lm 0.32; modeling_openpangu_dense.py of openPangu-Embedded-7B, as printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..catalog.layers.lightning import NormalisedLightning
from .hf_by_keys import FULL, Traits
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


REMOTE: Final[Mapping[str, Traits]] = {
    "bailing_moe": Traits(),
    "bailing_moe_v2": Traits(),
    "bailing_moe_linear": Traits(
        kinds=_ring_kinds,
        mixers={_LINEAR: _ring_mixer},
        idle="group_norm_size linear_silu",
    ),
    "PanguEmbedded": Traits(mlp_bias=False),
}
