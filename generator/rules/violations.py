"""What rules are written with: sources of requirements, violations with their places, and the
numbers that hints suggest.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from typing import Final, Protocol

from ..findings import NOTE, Edit, Location, Severity, Violation
from ..places import is_number_to_fill, is_several_words
from ..text.wording import listed as listed


def _places(before: str, after: str = "") -> Callable[[str], str]:
    """Return the function from a place to the source that it is, between these texts."""
    return lambda place: f"{before}{place}{after}"


deepspeed: Final = _places("deepspeedai/DeepSpeed deepspeed/", " @ edaa7221 (0.19.6)")
#: What was read, or read again, at a later release than the rest.
deepspeed_0_19_8: Final = _places("deepspeedai/DeepSpeed deepspeed/", " @ 0.19.8")
megatron_deepspeed: Final = _places("deepspeedai/Megatron-DeepSpeed ", " @ 4efb479d")
megatron_lm: Final = _places("NVIDIA/Megatron-LM megatron/", " @ d98e8a64")
transformers: Final = _places("huggingface/transformers ", " @ 5.23.0")
#: Reasoning from documented behaviour: no code of the framework checks it.
derived: Final = _places("derived: ")
azureml: Final = _places("azure-ai-ml azure/ai/ml/", " @ 1.35.2")
azureml_examples: Final = _places("Azure/azureml-examples ", " @ 085cd6ea")
accelerate: Final = _places("huggingface/accelerate src/accelerate/", " @ 1.15.0")
slurm: Final = _places("SchedMD/slurm src/", " @ slurm-22-05-8-1")
#: A section of one of Slurm's manual pages.
slurm_manual: Final = _places("", ", Slurm 22.05.8")
torch: Final = _places("pytorch/pytorch torch/", " @ 2.13.0")
nccl: Final = _places("NVIDIA/nccl ", " @ 5067397c")
ml_engineering: Final = _places("stas00/ml-engineering ")
transformer_engine: Final = _places(
    "NVIDIA/TransformerEngine transformer_engine/pytorch/", " @ d0067d0d"
)
training_operator: Final = _places("kubeflow/trainer pkg/", " @ v1.9.4")
kubernetes: Final = _places("kubernetes/kubernetes pkg/apis/", " @ v1.33")
skypilot: Final = _places("skypilot sky/", " @ 0.14.1")


#: Prime factors up to here are found: all of a number below 2^32, and no size that a run can have
#: is larger.
_LARGEST_PRIME: Final = 2**16
#: Larger numbers fit no framework's 64-bit integers; a number below has at most 103,680 divisors.
_LARGEST: Final = 2**63


def divisors(number: int, limit: int | None = None) -> list[int]:
    """The divisors of a positive `number`, ascending, up to `limit`.

    Of numbers from 2^32 on some may be missing: two prime factors above 2^16 count as one. Of
    numbers from 2^63 on, only 1 and the number itself are found.
    """
    all_divisors = _divisors(number)
    count = len(all_divisors) if limit is None else bisect_right(all_divisors, limit)
    return [*all_divisors[:count]]


@lru_cache(maxsize=256)
def _divisors(number: int) -> tuple[int, ...]:
    """From the prime factors, which are found by trial division."""
    all_divisors, rest, prime = [1], number, 2 if number < _LARGEST else number
    while rest > 1:
        # Without a factor up to its root, the rest is prime, or is taken for one.
        prime = prime if prime * prime <= rest and prime < _LARGEST_PRIME else rest
        powers = [1]
        while rest % prime == 0:
            rest //= prime
            powers.append(powers[-1] * prime)
        all_divisors = [d * power for power in powers for d in all_divisors]
        prime += 1
    return tuple(sorted(all_divisors))


def nearest(values: Iterable[int], target: int, count: int = 6) -> list[int]:
    """The `count` values nearest to `target`, ascending."""
    return sorted(sorted(values, key=lambda v: (abs(v - target), v))[:count])


def neighbours(step: int, target: int) -> list[int]:
    """The multiples of `step` just below and above `target` (above only, where below is 0)."""
    below = target // step * step
    return [m for m in (below, below + step) if m > 0]


class Located(Protocol):
    """A document that has a place for every name."""

    def locate(self, name: str, /) -> Location:
        """The place of a value, else of the nearest thing around it."""


def violation(
    document: Located,
    name: str,
    message: str,
    hint: str | None = None,
    *,
    severity: Severity | None = None,
    edits: tuple[Edit, ...] = (),
) -> Violation:
    """A violation at the value of this name."""
    return Violation(document.locate(name), message, hint, severity=severity, edits=edits)


def note_if_to_fill(
    text: object, name: str = "", otherwise: Severity | None = None
) -> Severity | None:
    """Return the severity of what is wrong with the value of `name`.

    It is a note where the reader is to write another value.
    """
    if isinstance(text, str) and (is_several_words(text) or is_number_to_fill(text, name)):
        return NOTE
    return otherwise


def suggest(
    text: str,
    choices: Iterable[str],
    otherwise: str | None = None,
    present: Container[str] = (),
) -> str:
    """A hint that names the nearest choice, else says `otherwise`, else lists them all.

    A choice that is `present` already isn't meant once more.
    """
    names = list(choices)
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    return did_you_mean(close[0], present) if close else otherwise or f"use {listed(names)}"


def did_you_mean(name: str, present: Container[str] = ()) -> str:
    """A hint that names what was meant, unless that is `present` beside it."""
    return f"remove it: {name} is there already" if name in present else f"did you mean {name}?"
