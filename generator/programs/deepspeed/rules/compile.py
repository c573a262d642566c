"""DeepCompile: the `compile` block."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Violations
from ....rules.violations import deepspeed_now, violation
from ..config import OFFLOADED, Config
from .subjects import configs, unused

_COMPILE: Final = "/compile"
_SWITCH: Final = f"{_COMPILE}/deepcompile"
_PASSES: Final = f"{_COMPILE}/passes"
_NON_MOE: Final = f"{_COMPILE}/autoep_non_moe"
_OFFLOADS: Final = ("offload_parameters", "offload_opt_states", "offload_activation")


_compiled: Final = configs.where(lambda config: config.switch(_SWITCH))


def _passes(config: Config) -> list[object]:
    passes = config.value(_PASSES)
    return passes if isinstance(passes, list) else []


@_compiled.rule("CMP002", WARNING, "silent", deepspeed_now("runtime/engine.py:5802"), since=(0, 17, 6))
def deepcompile_has_a_stage(config: Config) -> Violations:
    """DeepCompile, which compiles ZeRO, is used at stage 1, 2 or 3: at stage 0 torch compiles alone.
    Prevents: A job that is silently compiled by torch only.
    Fix: use a ZeRO stage"""
    if config.stage == 0 and not config.has(_PASSES):
        message = "deepcompile: true at ZeRO stage 0 falls back to torch's compiler, which only the log reports"
        yield violation(config, _SWITCH, message, "use stage 1, 2 or 3")


@configs.rule("CMP003", WARNING, "silent", deepspeed_now("runtime/engine.py:5928"), since=(0, 17, 6))
def compile_is_switched_on(config: Config) -> Violations:
    """DeepCompile's settings are written with deepcompile: true.
    Prevents: The settings silently have no effect.
    Fix: set deepcompile to true"""
    if config.switch(_SWITCH) is False and not config.switch(_NON_MOE):
        here = [f"{_COMPILE}/{key}" for key in config.block(_COMPILE) if key in (*_OFFLOADS, "passes")]
        used = (pointer for pointer in here if config.value(pointer) not in (False, None))
        yield from unused(config, used, "without deepcompile: true")


@_compiled.rule("CMP004", ERROR, "training", deepspeed_now("compile/init_z3.py:100, :147"), since=(0, 19, 8))
def one_thing_is_offloaded(config: Config) -> Violations:
    """DeepCompile at stage 3 offloads one of parameters, optimizer states and activations.
    Prevents: a ValueError when the engine compiles
    Fix: set one of them to true"""
    on = [key for key in _OFFLOADS if config.switch(f"{_COMPILE}/{key}")]
    if config.stage == 3 and len(on) > 1:
        message, hint = f"{' and '.join(on)} are both true, which DeepCompile refuses", "set one of them to true"
        yield violation(config, f"{_COMPILE}/{on[1]}", message, hint)


@_compiled.rule("CMP005", ERROR, "training", deepspeed_now("compile/init_z3.py:93"), since=(0, 19, 8))
def one_side_offloads_states(config: Config) -> Violations:
    """Optimizer states are offloaded by DeepCompile or by ZeRO, not both.
    Prevents: a ValueError when the engine compiles
    Fix: remove one of the two"""
    pointer = f"{_COMPILE}/offload_opt_states"
    if config.switch(pointer) and config.stage == 3 and config.offloads("optimizer"):
        message = f"offload_opt_states: true is refused with offload_optimizer to {config.offload('optimizer')}"
        yield violation(config, pointer, message, "remove one of the two")


@_compiled.rule("CMP006", ERROR, "training", deepspeed_now("runtime/engine.py:5842"), since=(0, 19, 8))
def autotp_pass_goes_alone(config: Config) -> Violations:
    """The pass autotp runs without the passes of ZeRO and AutoSP.
    Prevents: NotImplementedError when the engine compiles
    Fix: use autotp alone"""
    passes = _passes(config)
    others = [name for name in ("z1", "z3", "autosp") if name in passes]
    if "autotp" in passes and others:
        message = f"the pass autotp is refused together with {', '.join(others)}"
        yield violation(config, _PASSES, message, 'set passes to ["autotp"]')


@_compiled.rule("CMP007", WARNING, "silent", deepspeed_now("runtime/engine.py:5770"), since=(0, 18, 9))
def autosp_has_a_low_stage(config: Config) -> Violations:
    """The pass autosp runs at ZeRO stages 0 and 1.
    Prevents: Sequence parallelism is silently not applied.
    Fix: use stage 0 or 1"""
    if "autosp" in _passes(config) and config.stage in (2, 3):
        message = f"the pass autosp at ZeRO stage {config.stage} runs torch's compiler: no sequence parallelism"
        yield violation(config, _PASSES, message, "use stage 0 or 1")


@configs.rule("CMP008", ERROR, "training", deepspeed_now("runtime/engine.py:5888"), since=(0, 19, 8))
def compiled_parents_go_alone(config: Config) -> Violations:
    """autoep_non_moe runs without DeepCompile, AutoTP, stage 3 and offload.
    Prevents: a ValueError when the engine compiles
    Fix: remove one or the other"""
    tensor = config.value("/tensor_parallel/autotp_size", 0)
    others = ["deepcompile"] if config.switch(_SWITCH) else []
    others += [f"autotp_size: {tensor}"] if isinstance(tensor, int) and tensor > 1 else []
    others += ["ZeRO stage 3"] if config.stage == 3 else []
    others += [f"offload_{what}" for what in OFFLOADED if config.offloads(what)]
    if config.switch(_NON_MOE) and others:
        message, hint = f"autoep_non_moe: true is refused with {', '.join(others)}", "remove one or the other"
        yield violation(config, _NON_MOE, message, hint)
