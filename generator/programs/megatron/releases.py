"""What each release of Megatron-Core needs, and which options it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...findings import Version
from ...text.wording import dots

#: What a release needs, by the first release of which it is true. Triton is imported as the program
#: starts, and `any` is a program of which no version is asked.
#: **Source**: NVIDIA/Megatron-LM pyproject.toml (requires-python, dependencies, the extra `dev`),
#: docker/.ngc_version.dev and megatron/core/ssm/ops @ core_v0.16.1, core_v0.17.1, core_v0.18.2,
#: core_v0.19.0.
_NEEDS: Final[Mapping[Version, Mapping[str, str]]] = {
    (0, 16): {
        "Python": ">=3.10",
        "torch": ">=2.6.0",
        "Transformer Engine": ">=2.9,<2.12",
        "image": "nvcr.io/nvidia/pytorch:25.11-py3",
    },
    (0, 17): {
        "Python": ">=3.12",
        "torch": ">=2.6.0",
        "triton": "any",
        "Transformer Engine": "any",
        "image": "nvcr.io/nvidia/pytorch:26.02-py3",
    },
    (0, 18): {
        "Python": ">=3.12",
        "torch": ">=2.6.0",
        "triton": "any",
        "Transformer Engine": "any",
        "image": "nvcr.io/nvidia/pytorch:26.04-py3",
    },
    (0, 19): {
        "Python": ">=3.12",
        "torch": ">=2.6.0",
        "triton": "any",
        "Transformer Engine": "any",
        "image": "nvcr.io/nvidia/pytorch:26.06-py3",
    },
}


def needs_of(release: Version) -> dict[str, str]:
    """Return a release of Megatron-LM with the programs that it needs, and an image with them."""
    newest = max(first for first in _NEEDS if first <= release)
    return {"Megatron-LM": dots(release), **_NEEDS[newest]}
