"""Mixers side by side: they take the same normalised state, and what they return is added
(Falcon-H1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...dataclass import dataclass
from .mixer import Mixer, Product, Projection, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide(Mixer):
    """Several mixers of one layer."""

    called: ClassVar[str] = "mixers side by side"

    hidden: int
    mixers: tuple[Mixer, ...]

    @property
    def parts(self) -> tuple[Mixer, ...]:
        """The mixers."""
        return self.mixers

    @property
    def rotary(self) -> bool:  # type: ignore[override]
        """Whether one of them has rotated queries and keys."""
        return any(mixer.rotary for mixer in self.mixers)

    @property
    def shape(self) -> Mixer:
        """The shapes of its mixers, side by side."""
        return replace(self, mixers=tuple(mixer.shape for mixer in self.mixers))

    def averaged(self, alike: Mapping[Mixer, int]) -> Mixer:
        """Each of its mixers, averaged with those in the same place of the others."""
        means = []
        for place, mixer in enumerate(self.mixers):
            in_place: dict[Mixer, int] = {}
            for other, count in alike.items():
                part = other.parts[place]
                in_place[part] = in_place.get(part, 0) + count
            means.append(mixer.averaged(in_place))
        return replace(self, mixers=tuple(means))

    @property
    def widths(self) -> Widths:
        """Sums of theirs."""
        widths = [mixer.widths for mixer in self.mixers]
        return Widths(
            queries=sum(each.queries for each in widths),
            keys=sum(each.keys for each in widths),
            values=sum(each.values for each in widths),
        )

    @property
    def reads(self) -> int:
        """Those of all."""
        return sum(mixer.reads for mixer in self.mixers)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All of theirs."""
        return tuple(layer for mixer in self.mixers for layer in mixer.projections)

    @property
    def other_parameters(self) -> int:
        """The sum of theirs."""
        return sum(mixer.other_parameters for mixer in self.mixers)

    def rank_parameters(self, tensor: Any) -> Any:
        """The sum of theirs."""
        return sum(mixer.rank_parameters(tensor) for mixer in self.mixers)

    def norm_parameters(self, each: int) -> int:
        """The sum of theirs."""
        return sum(mixer.norm_parameters(each) for mixer in self.mixers)

    @property
    def products(self) -> tuple[Product, ...]:
        """All of theirs."""
        return tuple(product for mixer in self.mixers for product in mixer.products)

    @property
    def normed_elements(self) -> int:
        """The sum of theirs."""
        return sum(mixer.normed_elements for mixer in self.mixers)

    def kept_elements(self, *, repeats_keys: bool, packs: bool) -> int:
        """The sum of theirs."""
        return sum(
            mixer.kept_elements(repeats_keys=repeats_keys, packs=packs) for mixer in self.mixers
        )

    def core_flops(self, sequence: int) -> float:
        """The sum of theirs."""
        return sum(mixer.core_flops(sequence) for mixer in self.mixers)

    def computed_flops(self, sequence: int) -> float:
        """The sum of theirs."""
        return sum(mixer.computed_flops(sequence) for mixer in self.mixers)

    def core_elements(self, sequence: int) -> float:
        """The sum of theirs."""
        return sum(mixer.core_elements(sequence) for mixer in self.mixers)

    def scores(self, sequence: int) -> int:
        """The sum of theirs."""
        return sum(mixer.scores(sequence) for mixer in self.mixers)

    def kept_of_sequence(self, sequence: int) -> float:
        """The sum of theirs."""
        return sum(mixer.kept_of_sequence(sequence) for mixer in self.mixers)

    def state_elements(self, sequence: int) -> float:
        """The greatest of theirs: one runs after the other."""
        return max(mixer.state_elements(sequence) for mixer in self.mixers)
