"""A model's layers in their order, by kind: a layer is a mixer and a feed-forward, with their
norms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final

from ...dataclass import dataclass
from .feed_forward import FeedForward
from .mixer import Mixer, Projection
from .streams import Streams

#: Layers that a model has at most, by the schema of job specs.
MOST_LAYERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A normalisation over the hidden state."""

    #: layernorm (weight and bias) | layernorm-no-bias (weight) | rmsnorm (weight) | none (no
    #: parameters)
    kind: str
    epsilon: float = 1e-5

    @property
    def each(self) -> int:
        """Parameters of one element."""
        return {"layernorm": 2, "layernorm-no-bias": 1, "rmsnorm": 1, "none": 0}[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kind of layer."""

    hidden: int
    mixer: Mixer
    feed_forward: FeedForward
    norm: Norm
    norms: int = 2  #: as wide as the hidden state
    #: of what mixer and feed-forward return, not of what they take (OLMo 2)
    norm_after: bool = False
    streams: Streams | None = None  #: of the hidden state, where it has several
    #: of its parts, those whose weights a layer before holds, and how many of its norms (Zamba): it
    #: computes with them and keeps activations, but has no weights, gradients and states of its own
    borrowed: tuple[Mixer | FeedForward, ...] = ()
    borrowed_norms: int = 0

    @property
    def parts(self) -> tuple[Mixer | FeedForward, ...]:
        """Its mixers, each by itself, and its feed-forward."""
        return (*self.mixer.parts, self.feed_forward)

    @property
    def letters(self) -> str:
        """Letters of its parts in patterns of layers; empty where one has none."""
        letters = []
        if self.mixer.parts:
            letters.append(self.mixer.letter)
        if self.feed_forward.is_present:
            letters.append(self.feed_forward.letter)
        return "".join(letters) if all(letters) else ""

    @property
    def blocks(self) -> int:
        """Parts that add to the hidden state: a mixer and a feed-forward, or one of them."""
        return bool(self.mixer.parts) + self.feed_forward.is_present

    @property
    def norm_parameters(self) -> int:
        """Its norms, and those inside of its mixer; every tensor rank has them."""
        each = self.norm.each
        return each * self.norms * self.hidden + self.mixer.norm_parameters(each)

    @property
    def mixings(self) -> int:
        """How many times it mixes the streams of the hidden state, where that has several."""
        return self.streams.mixings(self.blocks) if self.streams else 0

    @property
    def stream_parameters(self) -> int:
        """Those by which each part reads the streams and adds to them."""
        return self.mixings * self.streams.parameters if self.streams else 0

    @property
    def used_parameters(self) -> int:
        """All that it computes with, a layer before it holds them or not."""
        parts = self.mixer.parameters + self.feed_forward.parameters
        return parts + self.norm_parameters + self.stream_parameters

    @property
    def parameters(self) -> int:
        """All that it holds."""
        return int(self.used_parameters - self.borrowed_parameters(1))

    def borrowed_parameters(self, tensor: Any) -> Any:
        """Those of one of `tensor` ranks that a layer before it holds."""
        parts = sum(part.rank_parameters(tensor) for part in self.borrowed)
        return parts + self.norm.each * self.borrowed_norms * self.hidden

    @property
    def active_matrix_parameters(self) -> int:
        """Parameters of products that one token meets."""
        parts = self.mixer.parameters + self.feed_forward.active_parameters
        return parts + self.stream_parameters

    def core_flops(self, sequence: int) -> float:
        """FLOPs a token of its mixer's core, and of products of streams with one another."""
        mixed = self.mixings * self.streams.mixing_flops if self.streams else 0.0
        return self.mixer.core_flops(sequence) + mixed

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Linear layers, with the names of transformers."""
        return (*self.mixer.projections, *self.feed_forward.projections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All layers of a model, by kind, in the order of their first layers."""

    kinds: tuple[Layer, ...]
    #: the layers in their order: a kind's place in `kinds`, and how many layers of it follow one
    #: another
    runs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, layers: Iterable[Layer]) -> Stack:
        """The stack of these layers."""
        layers = tuple(layers)  # alive to the end: the `id` of a freed one may be another's
        places: dict[Layer, int] = {}
        # The hash of a layer is that of all its parts, so each object is looked up once.
        place_of_object: dict[int, int] = {}
        counted = []
        for key, same_objects in groupby(layers, key=id):
            run = list(same_objects)
            if key not in place_of_object:
                place_of_object[key] = places.setdefault(run[0], len(places))
            counted.append((place_of_object[key], len(run)))

        # Neighbours that are equal, but not the same object, are one run.
        runs = tuple(
            (place, sum(count for _, count in equal_runs))
            for place, equal_runs in groupby(counted, key=itemgetter(0))
        )
        return cls(kinds=tuple(places), runs=runs)

    def __hash__(self) -> int:
        return hash(self.runs)

    def __len__(self) -> int:
        return _length(self.runs)

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of each kind."""
        return _counts(self.runs, len(self.kinds))

    @property
    def order(self) -> tuple[int, ...]:
        """Of each layer, the place of its kind."""
        return _order(self.runs)

    def where(self, condition: Callable[[Layer], bool]) -> tuple[int, ...]:
        """Numbers, from 0, of the layers for which `condition` holds."""
        chosen = {place for place, layer in enumerate(self.kinds) if condition(layer)}
        return tuple(i for i, place in enumerate(self.order) if place in chosen)

    def before(self, kind: int) -> tuple[int, ...]:
        """How many layers of a kind come before each layer, and at the end how many in all.

        A part of the stack has the difference of two of these.
        """
        return _before(self.runs, kind)

    @property
    def mixers(self) -> dict[Mixer, int]:
        """The mixers that differ, with their numbers of layers."""
        counts: dict[Mixer, int] = {}
        for layer, count in zip(self.kinds, self.counts, strict=True):
            counts[layer.mixer] = counts.get(layer.mixer, 0) + count
        return counts

    @property
    def largest(self) -> Layer:
        """The kind with most parameters, of kinds with as many the first."""
        return _largest(self)

    @property
    def largest_by_mixer(self) -> tuple[Layer, ...]:
        """For each mixer, the largest kind that has it."""
        return _largest_by_mixer(self)


@lru_cache(maxsize=16)
def _length(runs: tuple[tuple[int, int], ...]) -> int:
    """How many layers.

    This and what follows is cached, as formulas ask for it hundreds of times. Keys of the cache
    are runs, not stacks: in a launch's model, sizes of the kinds themselves may be unknown.
    """
    return sum(count for _, count in runs)


@lru_cache(maxsize=16)
def _order(runs: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(place for place, count in runs for _ in range(count))


@lru_cache(maxsize=16)
def _counts(runs: tuple[tuple[int, int], ...], kinds: int) -> tuple[int, ...]:
    counts = [0] * kinds
    for place, count in runs:
        counts[place] += count
    return tuple(counts)


@lru_cache(maxsize=64)
def _before(runs: tuple[tuple[int, int], ...], kind: int) -> tuple[int, ...]:
    return tuple(accumulate((place == kind for place in _order(runs)), initial=0))


@lru_cache(maxsize=16)
def _largest(stack: Stack) -> Layer:
    return max(stack.kinds, key=lambda layer: layer.parameters)


@lru_cache(maxsize=16)
def _largest_by_mixer(stack: Stack) -> tuple[Layer, ...]:
    return tuple(
        max((layer for layer in stack.kinds if layer.mixer == mixer), key=lambda k: k.parameters)
        for mixer in stack.mixers
    )


@lru_cache(maxsize=16)
def averaged(stack: Stack) -> Stack:
    """The stack as estimates take it.

    Layers that differ in windows or rotation alone are one kind, whose queries meet their mean
    number of keys.
    """
    shapes: dict[Mixer, dict[Mixer, int]] = {}
    for mixer, count in stack.mixers.items():
        shapes.setdefault(mixer.shape, {})[mixer] = count
    if len(shapes) == len(stack.mixers):
        return stack

    means: dict[Mixer, Mixer] = {}
    for alike in shapes.values():
        means |= dict.fromkeys(alike, next(iter(alike)).averaged(alike))
    kinds = [replace(layer, mixer=means[layer.mixer]) for layer in stack.kinds]
    return Stack.of(kinds[place] for place in stack.order)
