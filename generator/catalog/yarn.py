"""The numbers of YaRN, by which rotary positions reach beyond those that a model first had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Which dimensions rotate as before, and which more slowly.

    **Source**: 2309.00071; the defaults are those of transformers 5.23, modeling_rope_utils.py,
    `_compute_yarn_parameters`.
    """

    positions: int  #: that the model was trained with first
    #: dimensions that rotate at least so often over these positions stay as they are
    beta_fast: float = 32.0
    #: dimensions that rotate less often than this slow down by the whole factor
    beta_slow: float = 1.0
    rounds: bool = True  #: the dimensions in which these lie are rounded to whole ones
    #: scales of attention by the factor: of all of it, over that of queries and keys
    mscale: float = 1.0
    mscale_all_dim: float = 0.0  #: with latent attention its square also scales the softmax
    attention_factor: float | None = None  #: the scale of attention itself

    @property
    def is_plain(self) -> bool:
        """Whether attention is scaled as usual by the factor of the positions."""
        return self.attention_factor is None and (self.mscale, self.mscale_all_dim) == (1.0, 0.0)

    @property
    def unsaid_of_latents(self) -> dict[str, float]:
        """Those for which Megatron-LM's latent attention has no option and always takes others."""
        values = {key: getattr(self, name) for key, name in _NAMES.items()}
        unsaid = {key: values[key] for key, fixed in _OF_LATENTS.items() if values[key] != fixed}
        if self.attention_factor:
            unsaid["attention_factor"] = self.attention_factor
        return unsaid


#: What latent attention has in Megatron-LM, whatever the options.
#: **Source**: NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py,
#: MLATransformerConfig, and multi_latent_attention.py @ core_v0.16.1, core_v0.19.0.
_OF_LATENTS: Final[Mapping[str, float]] = {
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
}
_NAMES: Final = {
    "original_max_position_embeddings": "positions",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "truncate": "rounds",
}
