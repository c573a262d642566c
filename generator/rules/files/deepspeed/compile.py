"""DeepCompile: the `compile` block."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....findings import ERROR, WARNING, Violation, Violations
from ...sources import deepspeed_now
from .subjects import configs
from .values import unused
from .walk import reported

COMPILE: Final = "/compile"
_OFFLOADS: Final = ("offload_parameters", "offload_opt_states", "offload_activation")


@reported("CMP001", ERROR, "parse", deepspeed_now("compile/config.py:9; compile/config.py:76"), since=(0, 18, 9))
def passes_are_known() -> None:
    """DeepCompile knows every pass.

    Prevents: `ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`
    Fix: use a known pass
    """


@configs.rule("CMP002", WARNING, "silent", deepspeed_now("runtime/engine.py:5802"), since=(0, 17, 6))
def deepcompile_has_a_stage(config: Config) -> Violations:
    """DeepCompile compiles ZeRO, so there is a stage; at stage 0 torch compiles alone.

    Prevents: a job that is not compiled the way the config says
    Fix: a ZeRO stage
    """
    if config.switch(f"{COMPILE}/deepcompile") and config.stage == 0 and not config.has(f"{COMPILE}/passes"):
        message = "deepcompile: true at ZeRO stage 0 falls back to torch's compiler, told only in the log"
        yield Violation(where=config.locate(f"{COMPILE}/deepcompile"), message=message, hint="stage 1, 2 or 3")


@configs.rule("CMP003", WARNING, "silent", deepspeed_now("runtime/engine.py:5928"), since=(0, 17, 6))
def compile_is_switched_on(config: Config) -> Violations:
    """DeepCompile's settings are there with deepcompile.

    Prevents: settings that look effective and aren't
    Fix: deepcompile: true
    """
    off = config.switch(f"{COMPILE}/deepcompile") is False
    if off and not config.switch(f"{COMPILE}/autoep_non_moe"):
        here = [key for key in config.block(COMPILE) if key in (*_OFFLOADS, "passes")]
        used = [f"{COMPILE}/{key}" for key in here if config.value(f"{COMPILE}/{key}") not in (False, None)]
        yield from unused(config, used, "without deepcompile: true")


@configs.rule(
    "CMP004", ERROR, "training", deepspeed_now("compile/init_z3.py:100; compile/init_z3.py:147"), since=(0, 19, 8)
)
def one_thing_is_offloaded(config: Config) -> Violations:
    """DeepCompile at stage 3 offloads one kind of thing.

    Prevents: a ValueError when the engine compiles
    Fix: one of them
    """
    on = [key for key in _OFFLOADS if config.switch(f"{COMPILE}/{key}")]
    if config.switch(f"{COMPILE}/deepcompile") and config.stage == 3 and len(on) > 1:
        message = f"{' and '.join(on)} are both true, which DeepCompile refuses"
        yield Violation(where=config.locate(f"{COMPILE}/{on[1]}"), message=message, hint="one of them")


@configs.rule("CMP005", ERROR, "training", deepspeed_now("compile/init_z3.py:93"), since=(0, 19, 8))
def one_side_offloads_states(config: Config) -> Violations:
    """Optimizer states are offloaded by DeepCompile or by ZeRO.

    Prevents: a ValueError when the engine compiles
    Fix: one of the two
    """
    pointer, device = f"{COMPILE}/offload_opt_states", config.offload("optimizer")
    compiled = config.switch(f"{COMPILE}/deepcompile") and config.switch(pointer)
    if compiled and config.stage == 3 and device in ("cpu", "nvme"):
        message = f"offload_opt_states: true is refused with offload_optimizer to {device}"
        yield Violation(where=config.locate(pointer), message=message, hint="one of the two")


@configs.rule("CMP006", ERROR, "training", deepspeed_now("runtime/engine.py:5842"), since=(0, 19, 8))
def autotp_pass_goes_alone(config: Config) -> Violations:
    """The pass autotp runs without the passes of ZeRO and AutoSP.

    Prevents: NotImplementedError when the engine compiles
    Fix: autotp alone
    """
    passes = config.value(f"{COMPILE}/passes")
    if not config.switch(f"{COMPILE}/deepcompile") or not isinstance(passes, list) or "autotp" not in passes:
        return
    others = [name for name in ("z1", "z3", "autosp") if name in passes]
    if others:
        message = f"the pass autotp is refused together with {', '.join(others)}"
        yield Violation(where=config.locate(f"{COMPILE}/passes"), message=message, hint='["autotp"]')


@configs.rule("CMP007", WARNING, "silent", deepspeed_now("runtime/engine.py:5770"), since=(0, 18, 9))
def autosp_has_a_low_stage(config: Config) -> Violations:
    """The pass autosp runs at ZeRO stages 0 and 1.

    Prevents: a job without the sequence parallelism that the config says
    Fix: stage 0 or 1
    """
    passes, stage = config.value(f"{COMPILE}/passes"), config.stage
    on = config.switch(f"{COMPILE}/deepcompile") and isinstance(passes, list) and "autosp" in passes
    if on and stage in (2, 3):
        message = f"the pass autosp at ZeRO stage {stage} falls back to torch's compiler: no sequence parallelism"
        yield Violation(where=config.locate(f"{COMPILE}/passes"), message=message, hint="stage 0 or 1")


@configs.rule("CMP008", ERROR, "training", deepspeed_now("runtime/engine.py:5888"), since=(0, 19, 8))
def compiled_parents_go_alone(config: Config) -> Violations:
    """autoep_non_moe runs without DeepCompile, AutoTP, stage 3 and offload.

    Prevents: a ValueError when the engine compiles
    Fix: one or the other
    """
    if not config.switch(f"{COMPILE}/autoep_non_moe"):
        return
    tensor = config.value("/tensor_parallel/autotp_size", 0)
    others = ["deepcompile"] if config.switch(f"{COMPILE}/deepcompile") else []
    others += [f"autotp_size: {tensor}"] if isinstance(tensor, int) and tensor > 1 else []
    others += ["ZeRO stage 3"] if config.stage == 3 else []
    others += [f"offload_{what}" for what in ("optimizer", "param") if config.offload(what) in ("cpu", "nvme")]
    if others:
        message = f"autoep_non_moe: true is refused with {', '.join(others)}"
        yield Violation(where=config.locate(f"{COMPILE}/autoep_non_moe"), message=message, hint="one or the other")
