"""DeepCompile: the `compile` block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....documents.submission import Submission
from ....findings import Severity
from ...sources import deepspeed_now
from ..rule import Breach, DocumentRule
from .values import configs, ds_rule, idle, offload_device, stage_of, switch
from .walk import problems

COMPILE: Final = "/compile"
_OFFLOADS: Final = ("offload_parameters", "offload_opt_states", "offload_activation")


def passes_are_known(submission: Submission) -> Iterator[Breach]:
    """The passes are ones that DeepCompile has."""
    return (problem.breach(config) for config, problem in problems(submission) if problem.rule == "CMP001")


def deepcompile_has_a_stage(submission: Submission) -> Iterator[Breach]:
    """DeepCompile compiles ZeRO, so there is a stage; at stage 0 torch compiles alone."""
    for config in configs(submission):
        if switch(config, f"{COMPILE}/deepcompile") and stage_of(config) == 0 and not config.has(f"{COMPILE}/passes"):
            message = "deepcompile: true at ZeRO stage 0 falls back to torch's compiler, told only in the log"
            yield Breach(where=config.locate(f"{COMPILE}/deepcompile"), message=message, hint="stage 1, 2 or 3")


def compile_is_switched_on(submission: Submission) -> Iterator[Breach]:
    """DeepCompile's settings are there with deepcompile."""
    for config in configs(submission):
        off = switch(config, f"{COMPILE}/deepcompile") is False
        if off and not switch(config, f"{COMPILE}/autoep_non_moe"):
            here = [key for key in config.block(COMPILE) if key in (*_OFFLOADS, "passes")]
            used = [f"{COMPILE}/{key}" for key in here if config.value(f"{COMPILE}/{key}") not in (False, None)]
            yield from idle(config, used, "without deepcompile: true")


def one_thing_is_offloaded(submission: Submission) -> Iterator[Breach]:
    """DeepCompile at stage 3 offloads one kind of thing."""
    for config in configs(submission):
        on = [key for key in _OFFLOADS if switch(config, f"{COMPILE}/{key}")]
        if switch(config, f"{COMPILE}/deepcompile") and stage_of(config) == 3 and len(on) > 1:
            message = f"{' and '.join(on)} are both true, which DeepCompile refuses"
            yield Breach(where=config.locate(f"{COMPILE}/{on[1]}"), message=message, hint="one of them")


def one_side_offloads_states(submission: Submission) -> Iterator[Breach]:
    """Optimizer states are offloaded by DeepCompile or by ZeRO."""
    for config in configs(submission):
        pointer, device = f"{COMPILE}/offload_opt_states", offload_device(config, "optimizer")
        compiled = switch(config, f"{COMPILE}/deepcompile") and switch(config, pointer)
        if compiled and stage_of(config) == 3 and device in ("cpu", "nvme"):
            message = f"offload_opt_states: true is refused with offload_optimizer to {device}"
            yield Breach(where=config.locate(pointer), message=message, hint="one of the two")


def autotp_pass_goes_alone(submission: Submission) -> Iterator[Breach]:
    """The pass autotp runs without the passes of ZeRO and AutoSP."""
    for config in configs(submission):
        passes = config.value(f"{COMPILE}/passes")
        if not switch(config, f"{COMPILE}/deepcompile") or not isinstance(passes, list) or "autotp" not in passes:
            continue
        others = [name for name in ("z1", "z3", "autosp") if name in passes]
        if others:
            message = f"the pass autotp is refused together with {', '.join(others)}"
            yield Breach(where=config.locate(f"{COMPILE}/passes"), message=message, hint='["autotp"]')


def autosp_has_a_low_stage(submission: Submission) -> Iterator[Breach]:
    """The pass autosp runs at ZeRO stages 0 and 1."""
    for config in configs(submission):
        passes, stage = config.value(f"{COMPILE}/passes"), stage_of(config)
        on = switch(config, f"{COMPILE}/deepcompile") and isinstance(passes, list) and "autosp" in passes
        if on and stage in (2, 3):
            message = f"the pass autosp at ZeRO stage {stage} falls back to torch's compiler: no sequence parallelism"
            yield Breach(where=config.locate(f"{COMPILE}/passes"), message=message, hint="stage 0 or 1")


def compiled_parents_go_alone(submission: Submission) -> Iterator[Breach]:
    """autoep_non_moe runs without DeepCompile, AutoTP, stage 3 and offload."""
    for config in configs(submission):
        if not switch(config, f"{COMPILE}/autoep_non_moe"):
            continue
        tensor = config.value("/tensor_parallel/autotp_size", 0)
        others = ["deepcompile"] if switch(config, f"{COMPILE}/deepcompile") else []
        others += [f"autotp_size: {tensor}"] if isinstance(tensor, int) and tensor > 1 else []
        others += ["ZeRO stage 3"] if stage_of(config) == 3 else []
        others += [
            f"offload_{what}" for what in ("optimizer", "param") if offload_device(config, what) in ("cpu", "nvme")
        ]
        if others:
            message = f"autoep_non_moe: true is refused with {', '.join(others)}"
            yield Breach(where=config.locate(f"{COMPILE}/autoep_non_moe"), message=message, hint="one or the other")


RULES: Final[tuple[DocumentRule, ...]] = (
    ds_rule(
        "CMP001",
        Severity.ERROR,
        "parse",
        passes_are_known,
        source=deepspeed_now("compile/config.py:9; compile/config.py:76"),
        prevents="`ValidationError: Input should be 'z1', 'z3', 'autosp' or 'autotp'`",
        fix="a known pass",
        since=(0, 18, 9),
    ),
    ds_rule(
        "CMP002",
        Severity.WARNING,
        "silent",
        deepcompile_has_a_stage,
        source=deepspeed_now("runtime/engine.py:5802"),
        prevents="a job that is not compiled the way the config says",
        fix="a ZeRO stage",
        since=(0, 17, 6),
    ),
    ds_rule(
        "CMP003",
        Severity.WARNING,
        "silent",
        compile_is_switched_on,
        source=deepspeed_now("runtime/engine.py:5928"),
        prevents="settings that look effective and aren't",
        fix="deepcompile: true",
        since=(0, 17, 6),
    ),
    ds_rule(
        "CMP004",
        Severity.ERROR,
        "training",
        one_thing_is_offloaded,
        source=deepspeed_now("compile/init_z3.py:100; compile/init_z3.py:147"),
        prevents="a ValueError when the engine compiles",
        fix="one of them",
        since=(0, 19, 8),
    ),
    ds_rule(
        "CMP005",
        Severity.ERROR,
        "training",
        one_side_offloads_states,
        source=deepspeed_now("compile/init_z3.py:93"),
        prevents="a ValueError when the engine compiles",
        fix="one of the two",
        since=(0, 19, 8),
    ),
    ds_rule(
        "CMP006",
        Severity.ERROR,
        "training",
        autotp_pass_goes_alone,
        source=deepspeed_now("runtime/engine.py:5842"),
        prevents="NotImplementedError when the engine compiles",
        fix="autotp alone",
        since=(0, 19, 8),
    ),
    ds_rule(
        "CMP007",
        Severity.WARNING,
        "silent",
        autosp_has_a_low_stage,
        source=deepspeed_now("runtime/engine.py:5770"),
        prevents="a job without the sequence parallelism that the config says",
        fix="stage 0 or 1",
        since=(0, 18, 9),
    ),
    ds_rule(
        "CMP008",
        Severity.ERROR,
        "training",
        compiled_parents_go_alone,
        source=deepspeed_now("runtime/engine.py:5888"),
        prevents="a ValueError when the engine compiles",
        fix="one or the other",
        since=(0, 19, 8),
    ),
)
