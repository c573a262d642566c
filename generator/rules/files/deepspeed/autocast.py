"""torch.autocast as DeepSpeed runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now, derived
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, given, precision, shown, switch


def autocast_names_its_type(submission: Submission) -> Iterator[Breach]:
    """torch_autocast says which type it casts to: without one, CUDA casts to fp16, and nothing scales the loss."""
    for config in configs(submission):
        if switch(config, "/torch_autocast/enabled") and config.value("/torch_autocast/dtype") is None:
            message = "torch_autocast without dtype casts to torch's default, fp16 on CUDA, and the loss is not scaled"
            yield Breach(where=config.locate("/torch_autocast"), message=message, hint='"dtype": "bf16"')


def autocast_gathers_whole_weights(submission: Submission) -> Iterator[Breach]:
    """torch_autocast runs without quantized weights."""
    for config in configs(submission):
        pointer = "/zero_optimization/zero_quantized_weights"
        if switch(config, "/torch_autocast/enabled") and switch(config, pointer):
            message = "torch_autocast and zero_quantized_weights are both enabled, which DeepSpeed refuses"
            yield Breach(where=config.locate(pointer), message=message, hint="one of them")


def autocast_finds_fp32(submission: Submission) -> Iterator[Breach]:
    """torch_autocast works on a model in fp32, so fp16 and bf16 are off."""
    for config in configs(submission):
        kind = precision(config)
        if switch(config, "/torch_autocast/enabled") and kind in ("fp16", "bf16"):
            message = f"torch_autocast is enabled, but {kind} casts every parameter already:"
            message += f" what autocast keeps in fp32 starts from {kind} weights"
            yield Breach(
                where=config.locate("/torch_autocast/enabled"), message=message, hint=f"torch_autocast or {kind}"
            )


def vocabulary_fills_tensor_cores(submission: Submission) -> Iterator[Breach]:
    """vocabulary_size is a multiple of 8, which tensor cores want."""
    for config in configs(submission):
        size = given(config, "/vocabulary_size")
        if isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % 8:
            message = f"vocabulary_size: {shown(size)} is not a multiple of 8: products with the embedding run slower"
            hint = f"pad the vocabulary to {size + 8 - size % 8}"
            yield Breach(where=config.locate("/vocabulary_size"), message=message, hint=hint)


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "PREC025",
        Severity.ERROR,
        "silent",
        autocast_names_its_type,
        source=deepspeed_now("runtime/config.py:172; runtime/engine.py:671; runtime/torch_autocast.py:132"),
        prevents="fp16 training without loss scaling: small gradients silently become zero",
        fix="torch_autocast.dtype: bf16",
        since=(0, 17, 0),
    ),
    ds_rule(
        "PREC026",
        Severity.ERROR,
        "init",
        autocast_gathers_whole_weights,
        source=deepspeed_now("runtime/torch_autocast.py:32"),
        prevents="`Cannot enable both torch autocast and zero quantized weights`",
        fix="one of the two",
        since=(0, 17, 0),
    ),
    ds_rule(
        "PREC027",
        Severity.NOTE,
        "silent",
        autocast_finds_fp32,
        source=derived(
            "runtime/engine.py:2077 of DeepSpeed 0.19.8 casts the module's parameters whatever torch_autocast says"
        ),
        prevents="two ways of mixed precision at once, of which the second can't do what it is for",
        fix="one of the two",
        since=(0, 17, 0),
    ),
    ds_rule(
        "PREC028",
        Severity.WARNING,
        "silent",
        vocabulary_fills_tensor_cores,
        source=deepspeed_now("runtime/config.py:717"),
        prevents="slower products with the embedding, told only in the log",
        fix="a multiple of 8",
    ),
)
