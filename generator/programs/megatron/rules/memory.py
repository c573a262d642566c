"""Sharding, recomputation and offload in Megatron-LM's arguments."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Severity, Violations
from ....rules.violations import megatron_lm
from ..run import EXPERT, FIRST_STAGE, LAST_STAGE, LAYERS, PIPELINE, STAGE_LAYOUT, TENSOR, MegatronRun
from .rule import CONFIG, at, excludes, lm_runs, needs, undivided

_DISTRIBUTED: Final = "--use-distributed-optimizer"
_TORCH_FSDP: Final = "--use-torch-fsdp2"
_MEGATRON_FSDP: Final = "--use-megatron-fsdp"
_FORMAT: Final = "--ckpt-format"
_GRANULARITY: Final = "--recompute-granularity"
_ACTIVATIONS: Final = "--recompute-activations"
_COUNT: Final = "--recompute-num-layers"
#: Options that give stages different numbers of layers, or another number of layers.
_UNEVEN: Final = (
    *(FIRST_STAGE, LAST_STAGE, STAGE_LAYOUT),
    *("--hybrid-layer-pattern", "--hybrid-override-pattern", "--heterogeneous-layers-config-path"),
)


@lm_runs.rule("MLM021", ERROR, "init", megatron_lm("training/arguments.py:1031-1049"))
def torch_fsdp_is_alone(run: MegatronRun) -> Violations:
    """PyTorch's FSDP2 runs without pipeline, experts, distributed optimizer, fp16 and tied embeddings.
    Prevents: AssertionError: --use-torch-fsdp2 is not supported with ...
    Fix: remove the option that it isn't supported with"""
    if not run.has(_TORCH_FSDP):
        return
    for name, size in ((PIPELINE, run.pipeline), (EXPERT, run.expert)):
        if size is not None and size > 1:
            yield at(run, name, f"{name} {size} is given with {_TORCH_FSDP}", f"use {name} 1, or remove {_TORCH_FSDP}")
    yield from excludes(run, _TORCH_FSDP, [_DISTRIBUTED, "--fp16"])
    yield from needs(run, _TORCH_FSDP, "--no-gradient-accumulation-fusion")
    yield from needs(run, _TORCH_FSDP, "--untie-embeddings-and-output-weights")
    if run.value(_FORMAT) not in (None, "torch_dist", "torch_dcp"):
        yield at(run, _FORMAT, f"{run.shown(_FORMAT)} is given with {_TORCH_FSDP}", f"use {_FORMAT} torch_dist")


@lm_runs.rule("MLM022", ERROR, "init", megatron_lm("training/arguments.py:1167, 1674"))
def megatron_fsdp_has_its_checkpoints(run: MegatronRun) -> Violations:
    """Megatron FSDP writes checkpoints in the format fsdp_dtensor, and nothing else does.
    Prevents: AssertionError: Megatron-FSDP requires the `fsdp_dtensor` checkpointing format
    Fix: use --ckpt-format fsdp_dtensor"""
    if run.has(_MEGATRON_FSDP) and run.choice(_FORMAT, "torch_dist") not in (None, "fsdp_dtensor"):
        message = f"{_MEGATRON_FSDP} with {run.shown(_FORMAT, 'torch_dist')}: it has one format, fsdp_dtensor"
        yield at(run, _MEGATRON_FSDP, message, f"use {_FORMAT} fsdp_dtensor")
    if run.value(_FORMAT) == "fsdp_dtensor" and run.lacks(_MEGATRON_FSDP):
        yield at(run, _FORMAT, f"{_FORMAT} fsdp_dtensor is given without {_MEGATRON_FSDP}", f"use {_FORMAT} torch_dist")


@lm_runs.rule("MLM065", ERROR, "init", megatron_lm("training/arguments.py:1663-1671"))
def dcp_checkpoints_are_of_fsdp(run: MegatronRun) -> Violations:
    """The checkpoint format torch_dcp is for FSDP2 without tensor and pipeline parallelism.
    Prevents: AssertionError: --ckpt-format torch_dcp is only tested with FSDP
    Fix: use --ckpt-format torch_dist"""
    if run.value(_FORMAT) == "torch_dcp":
        if run.lacks(_TORCH_FSDP):
            yield at(run, _FORMAT, f"{_FORMAT} torch_dcp is given without {_TORCH_FSDP}", f"use {_FORMAT} torch_dist")
        yield from undivided(run, _FORMAT, TENSOR, PIPELINE)


@lm_runs.rule(
    "MLM025",
    ERROR,
    "init",
    megatron_lm(f"{CONFIG}:1901-1938; training/arguments.py:1425")
    + "; core/transformer/transformer_block.py:536 @ core_v0.16.1",
)
def recomputation_is_complete(run: MegatronRun) -> Violations:
    """Full recomputation has a method and a number of layers; selective has neither.
    Prevents: ValueError: recompute_method must be block or uniform; IndexError, or an endless loop
    Fix: give a method and a number of layers with full, neither with selective"""
    for part, value in (("--recompute-method", "uniform"), (_COUNT, "1")):
        if run.recomputes == "selective" and run.has(part):
            message = f"{run.shown(part)} is given, but recomputation is selective"
            yield at(run, part, message, f"remove {part}, or use {_GRANULARITY} full")
        elif run.recomputes == "full" and run.lacks(part):
            yield at(run, _GRANULARITY, f"{_GRANULARITY} full is given without {part}", f"add {part} {value}")
    if run.recomputes == "full":
        count = run.integer(_COUNT)
        if count is not None and count < 1:
            yield at(run, _COUNT, f"{_COUNT} {count} is less than 1", f"use {_COUNT} 1")
        elif count is not None and run.layers and run.pipeline and not run.has_any(*_UNEVEN):
            room = -(-run.layers // run.pipeline)
            if count > room:
                in_blocks = run.value("--recompute-method") == "block"  # it recomputes all of them
                message = f"{_COUNT} {count} is more than the {room} layers of a stage"
                yield at(run, _COUNT, message, f"use {_COUNT} {room}", severity=Severity.WARNING if in_blocks else None)


@lm_runs.rule("MLM066", ERROR, "init", megatron_lm(f"{CONFIG}:1960-1990"))
def modules_to_recompute_exist(run: MegatronRun) -> Violations:
    """--recompute-modules names parts that the model has, with selective recomputation.
    Prevents: ValueError: moe_act in recompute_modules is only supported with moe_grouped_gemm
    Fix: remove the module, or add its option"""
    name, modules = "--recompute-modules", run.value("--recompute-modules")
    if not isinstance(modules, tuple):
        return
    selective = run.value(_GRANULARITY) == "selective" or run.has(_ACTIVATIONS)
    for module, needed in (("moe_act", "--moe-grouped-gemm"), ("mla_up_proj", "--multi-latent-attention")):
        if selective and module in modules and run.lacks(needed):
            yield at(run, name, f"{name} {module} is given without {needed}", f"add {needed}, or remove {module}")
    if run.value(_GRANULARITY) == "full" and not selective:
        message = f"{name} {' '.join(map(str, modules))} is ignored with {_GRANULARITY} full"
        yield at(run, name, message, f"use {_GRANULARITY} selective", severity=Severity.WARNING)


@lm_runs.rule("MLM026", ERROR, "init", megatron_lm(f"training/arguments.py:1410; {CONFIG}:1933"))
def saved_activations_are_distributed_when_full(run: MegatronRun) -> Violations:
    """Saved activations are distributed over tensor ranks, with full recomputation, without sequence parallelism.
    Prevents: AssertionError
    Fix: remove --distribute-saved-activations"""
    name = "--distribute-saved-activations"
    if run.has(name) and run.tensor == 1:
        yield at(run, name, f"{name} with {TENSOR} 1", f"use {TENSOR} 2, or remove {name}")
    if run.has(name) and (run.lacks(_GRANULARITY) or run.value(_GRANULARITY) == "selective"):
        yield at(run, name, f"{name} is given without {_GRANULARITY} full", f"remove {name}")
    yield from excludes(run, "--sequence-parallel", [name])


@lm_runs.rule("MLM027", ERROR, "init", megatron_lm(f"{CONFIG}:1883-1896"))
def layers_are_offloaded_alone(run: MegatronRun) -> Violations:
    """Fewer layers are offloaded than there are, without pipeline stages and recomputation.
    Prevents: ValueError: Currently there is no support for Pipeline parallelism with CPU offloading
    Fix: use one stage, and no recomputation"""
    name, count = "--cpu-offloading-num-layers", run.size("--cpu-offloading-num-layers")
    if not count:
        return
    yield from undivided(run, name, PIPELINE)
    yield from excludes(run, name, [_GRANULARITY, _ACTIVATIONS])
    if run.layers and count >= run.layers:
        yield at(run, name, f"{name} {count} is not less than {LAYERS} {run.layers}", f"use {name} {run.layers - 1}")


@lm_runs.rule("MLM028", ERROR, "init", megatron_lm("training/arguments.py:1884"))
def offloaded_optimizer_is_precision_aware(run: MegatronRun) -> Violations:
    """The offloaded optimizer is the precision-aware one; FP8 parameters then use the delayed recipe.
    Prevents: AssertionError
    Fix: add --use-precision-aware-optimizer"""
    name, recipe = "--optimizer-cpu-offload", run.value("--fp8-recipe", "delayed")
    yield from needs(run, name, "--use-precision-aware-optimizer")
    if run.has(name) and run.has("--fp8-param-gather") and recipe not in (None, "delayed"):
        message = f"{name} with --fp8-param-gather needs --fp8-recipe delayed, not {recipe}"
        yield at(run, name, message, "use --fp8-recipe delayed")


@lm_runs.rule("MLM067", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py:433"))
def optimizer_types_have_their_optimizer(run: MegatronRun) -> Violations:
    """The precision-aware optimizer is Adam, and only it keeps masters, gradients and moments in less than fp32.
    Prevents: AssertionError: main_grads_dtype can only be fp32 when not using precision-aware optimizer
    Fix: add --use-precision-aware-optimizer"""
    aware, kind = "--use-precision-aware-optimizer", run.value("--optimizer", "adam")
    if run.has(aware) and kind not in (None, "adam"):
        yield at(run, aware, f"{aware} with --optimizer {kind}: it exists for Adam only", f"remove {aware}")
    for name in ("--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"):
        if run.value(name) not in (None, "fp32") and run.lacks(aware):
            yield at(run, name, f"{run.shown(name)} is given without {aware}", f"add {aware}, or use {name} fp32")
