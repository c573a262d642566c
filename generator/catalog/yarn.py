"""The numbers of YaRN, by which rotary positions reach beyond those that a model first had."""

from __future__ import annotations

from ..dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Which dimensions rotate as before, and which more slowly.

    **Source**: 2309.00071; the defaults are those of transformers 5.23, modeling_rope_utils.py,
    `_compute_yarn_parameters`.
    """

    positions: int  #: that the model was trained with first
    beta_fast: float = (
        32.0  #: rotations over these positions from which dimensions stay as they are
    )
    beta_slow: float = 1.0  #: and below which they slow down by the whole factor
    rounds: bool = True  #: the dimensions in which these lie are rounded to whole ones
