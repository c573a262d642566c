"""torch.autocast as DeepSpeed runs it."""

from __future__ import annotations

from ....documents.deepspeed_config import Config
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...sources import deepspeed_now, derived
from .subjects import configs
from .values import shown


@configs.rule(
    "PREC025",
    ERROR,
    "silent",
    deepspeed_now("runtime/config.py:172; runtime/engine.py:671; runtime/torch_autocast.py:132"),
    since=(0, 17, 0),
)
def autocast_names_its_type(config: Config) -> Violations:
    """torch_autocast says which type it casts to: without one, CUDA casts to fp16, and nothing scales the loss.

    Prevents: fp16 training without loss scaling: small gradients silently become zero
    Fix: torch_autocast.dtype: bf16
    """
    if config.switch("/torch_autocast/enabled") and config.value("/torch_autocast/dtype") is None:
        message = "torch_autocast without dtype casts to torch's default, fp16 on CUDA, and the loss is not scaled"
        yield Violation(where=config.locate("/torch_autocast"), message=message, hint='"dtype": "bf16"')


@configs.rule("PREC026", ERROR, "init", deepspeed_now("runtime/torch_autocast.py:32"), since=(0, 17, 0))
def autocast_gathers_whole_weights(config: Config) -> Violations:
    """torch_autocast runs without quantized weights.

    Prevents: `Cannot enable both torch autocast and zero quantized weights`
    Fix: one of the two
    """
    pointer = "/zero_optimization/zero_quantized_weights"
    if config.switch("/torch_autocast/enabled") and config.switch(pointer):
        message = "torch_autocast and zero_quantized_weights are both enabled, which DeepSpeed refuses"
        yield Violation(where=config.locate(pointer), message=message, hint="one of them")


@configs.rule(
    "PREC027",
    NOTE,
    "silent",
    derived("runtime/engine.py:2077 of DeepSpeed 0.19.8 casts the module's parameters whatever torch_autocast says"),
    since=(0, 17, 0),
)
def autocast_finds_fp32(config: Config) -> Violations:
    """torch_autocast works on a model in fp32, so fp16 and bf16 are off.

    Prevents: two ways of mixed precision at once, of which the second can't do what it is for
    Fix: one of the two
    """
    kind = config.precision
    if config.switch("/torch_autocast/enabled") and kind in ("fp16", "bf16"):
        message = f"torch_autocast is enabled, but {kind} casts every parameter already:"
        message += f" what autocast keeps in fp32 starts from {kind} weights"
        yield Violation(
            where=config.locate("/torch_autocast/enabled"), message=message, hint=f"torch_autocast or {kind}"
        )


@configs.rule("PREC028", WARNING, "silent", deepspeed_now("runtime/config.py:717"))
def vocabulary_fills_tensor_cores(config: Config) -> Violations:
    """vocabulary_size is a multiple of 8, which tensor cores want.

    Prevents: slower products with the embedding, told only in the log
    Fix: a multiple of 8
    """
    size = config.read("/vocabulary_size")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0 and size % 8:
        message = f"vocabulary_size: {shown(size)} is not a multiple of 8: products with the embedding run slower"
        hint = f"pad the vocabulary to {size + 8 - size % 8}"
        yield Violation(where=config.locate("/vocabulary_size"), message=message, hint=hint)
