"""torch.autocast as DeepSpeed runs it."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violations
from ....rules.sources import deepspeed_now, derived
from ....rules.violations import violation
from ..config import ZERO, Config
from .subjects import configs
from .values import shown

_AUTOCAST: Final = "/torch_autocast"
_ENABLED: Final = f"{_AUTOCAST}/enabled"
_SOURCE: Final = "runtime/config.py:172; runtime/engine.py:671; runtime/torch_autocast.py:132"


@configs.rule("PREC025", ERROR, "silent", deepspeed_now(_SOURCE), since=(0, 17, 0))
def autocast_names_its_type(config: Config) -> Violations:
    """torch_autocast sets dtype: without one, CUDA casts to fp16, and nothing scales the loss.

    Prevents: fp16 training without loss scaling: small gradients silently become zero
    Fix: set torch_autocast.dtype to bf16"""
    if config.switch(_ENABLED) and config.value(f"{_AUTOCAST}/dtype") is None:
        message = "torch_autocast without dtype casts to torch's default, fp16 on CUDA, and the loss is not scaled"
        yield violation(config, _AUTOCAST, message, 'add "dtype": "bf16"')


@configs.rule("PREC026", ERROR, "init", deepspeed_now("runtime/torch_autocast.py:32"), since=(0, 17, 0))
def autocast_gathers_whole_weights(config: Config) -> Violations:
    """torch_autocast runs without quantized weights.

    Prevents: `Cannot enable both torch autocast and zero quantized weights`
    Fix: disable one of the two"""
    pointer = f"{ZERO}/zero_quantized_weights"
    if config.switch(_ENABLED) and config.switch(pointer):
        message = "torch_autocast and zero_quantized_weights are both enabled, which DeepSpeed refuses"
        yield violation(config, pointer, message, "disable one of the two")


@configs.rule(
    "PREC027", NOTE, "silent", derived("engine.py:2077 of DeepSpeed 0.19.8 casts in any case"), since=(0, 17, 0)
)
def autocast_finds_fp32(config: Config) -> Violations:
    """torch_autocast works on a model in fp32, so fp16 and bf16 are off.

    Prevents: Two ways of mixed precision at once, of which the second has nothing left to keep in fp32.
    Fix: disable one of the two"""
    precision = config.precision
    if config.switch(_ENABLED) and precision in ("fp16", "bf16"):
        message = f"torch_autocast is enabled, but {precision} casts every parameter already:"
        message += f" what autocast keeps in fp32 starts from {precision} weights"
        yield violation(config, _ENABLED, message, f"disable torch_autocast or {precision}")


@configs.rule("PREC028", WARNING, "silent", deepspeed_now("runtime/config.py:717"))
def vocabulary_fills_tensor_cores(config: Config) -> Violations:
    """vocabulary_size is a multiple of 8, as tensor cores require.

    Prevents: Slower products with the embedding, which only the log reports.
    Fix: use a multiple of 8"""
    size = config.read("/vocabulary_size")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % 8:
        message = f"vocabulary_size: {shown(size)} is not a multiple of 8: products with the embedding run slower"
        yield violation(config, "/vocabulary_size", message, f"pad the vocabulary to {size + 8 - size % 8}")
