"""What kinds of softmax attention have in common: heads, the keys that a query meets, scores,
sinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ...dataclass import dataclass
from .mixer import Mixer


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The keys that a query attends to: all, those before it, or of these some."""

    causal: bool = True  #: False in encoders such as BERT
    window: int | None = None  #: tokens of local attention
    chunked: bool = False  #: the window is a chunk of the sequence that doesn't slide (Llama 4)
    masked: bool = False  #: by a mask of its own, so that kernels compute what it hides too
    mean_of: tuple[tuple[Span, int], ...] = ()  #: spans that it stands for, each with its layers

    def keys(self, sequence: int) -> float:
        """Keys of a query, in the mean over positions.

        **Source**: counted from the masks of transformers' masking_utils.py (causal, sliding
        window, chunked).
        **Symbols**: s sequence, w window or chunk: s/2 where attention is whole and causal (s where
        it isn't), w - w²/2s where the window slides, w/2 where the sequence is cut into chunks.
        """
        if self.mean_of:
            layers = sum(count for _, count in self.mean_of)
            return sum(count * span.keys(sequence) for span, count in self.mean_of) / layers

        window = self.window
        if window is None or window >= sequence:
            return sequence / 2 if self.causal else float(sequence)
        return window / 2 if self.chunked else window - window**2 / (2 * sequence)

    def computed_keys(self, sequence: int) -> float:
        """Keys of a query that kernels compute: they skip what the span hides, but nothing that
        only a mask hides.
        """
        return float(sequence) if self.masked else self.keys(sequence)


class SoftmaxAttention(Mixer):
    """Attention by the softmax of scores: a number for each query head and key."""

    __slots__ = ()

    has_scores: ClassVar[bool] = True

    heads: int
    kv_heads: int
    head_dim: int  #: of queries and keys
    qkv_bias: bool
    output_bias: bool
    qk_norm: str
    sinks: bool
    span: Span

    def averaged(self, alike: Mapping[Mixer, int]) -> Mixer:
        """Itself, with the mean keys of the mixers alike; rotary where one of them is."""
        spans: dict[Span, int] = {}
        for mixer, count in alike.items():
            if isinstance(mixer, SoftmaxAttention):
                spans[mixer.span] = spans.get(mixer.span, 0) + count
        mean = Span(mean_of=tuple(spans.items())) if len(spans) > 1 else self.span
        rotary = any(mixer.rotary for mixer in alike)
        return replace(self, span=mean, rotary=rotary)  # type: ignore[type-var]

    @property
    def shape(self) -> Mixer:
        """Itself without what changes neither sizes nor products: which keys a query meets, and
        rotation.
        """
        return replace(self, span=Span(), rotary=False)  # type: ignore[type-var]

    @property
    def value_dim(self) -> int:
        """Elements of a head's values."""
        return self.head_dim

    @property
    def has_learned_norms(self) -> bool:
        """Whether norms inside it have parameters."""
        return self.qk_norm in ("head", "full")

    @property
    def other_parameters(self) -> int:
        """Sinks: a learned scalar a head."""
        return self.heads if self.sinks else 0

    def norm_parameters(self, each: int) -> int:
        """Norms of queries and keys."""
        vectors = {"head": 2, "full": self.heads + self.kv_heads}.get(self.qk_norm, 0)
        return each * vectors * self.head_dim

    def core_flops(self, sequence: int) -> float:
        """FLOPs of scores and of their product with the values."""
        queries, _, values = self.widths
        return 2.0 * self.span.keys(sequence) * (queries + values)

    def scores(self, sequence: int) -> int:
        """A score for each head and token of the sequence, masked or not."""
        return self.heads * sequence

    @property
    def tensor_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return {"attention heads": self.heads}

    @property
    def context_cuts(self) -> Mapping[str, int]:
        """Heads, whole."""
        return {"attention heads": self.heads}

    @property
    def exchanged_heads(self) -> tuple[int, int]:
        """All heads."""
        return self.heads, self.kv_heads
