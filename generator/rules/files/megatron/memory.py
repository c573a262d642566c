"""What shards, recomputes and offloads in Megatron-LM's arguments."""

from __future__ import annotations

from typing import Final

from ....documents.megatron_arguments import MegatronArguments
from ....findings import ERROR, Severity, Violation, Violations
from ...sources import megatron_lm
from .rule import EXPERT, PIPELINE, TENSOR, Run, degree, excludes, lm_runs, needs, sized

_DISTRIBUTED: Final = "--use-distributed-optimizer"
_SEQUENCE: Final = "--sequence-parallel"
_TORCH_FSDP: Final = "--use-torch-fsdp2"
_MEGATRON_FSDP: Final = "--use-megatron-fsdp"
#: Options that give stages different numbers of layers, or another number of layers.
_UNEVEN: Final = (
    *("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers", "--pipeline-model-parallel-layout"),
    *("--hybrid-layer-pattern", "--hybrid-override-pattern", "--heterogeneous-layers-config-path"),
)


@lm_runs.rule("MLM021", ERROR, "init", megatron_lm("training/arguments.py:1031-1049"))
def torch_fsdp_stands_alone(run: Run) -> Violations:
    """PyTorch's FSDP2 runs without pipeline, experts, distributed optimizer, fp16 and tied embeddings.

    Prevents: AssertionError: --use-torch-fsdp2 is not supported with ...
    Fix: remove what it isn't supported with
    """
    arguments = run.arguments
    if not arguments.has(_TORCH_FSDP):
        return
    for name in (PIPELINE, EXPERT):
        size = degree(arguments, name)
        if size is not None and size > 1:
            message = f"{name} {size} is given beside {_TORCH_FSDP}"
            yield Violation(where=arguments.locate(name), message=message, hint=f"{name} 1, or no {_TORCH_FSDP}")
    yield from excludes(arguments, _TORCH_FSDP, [_DISTRIBUTED, "--fp16"])
    yield from needs(arguments, _TORCH_FSDP, ["--no-gradient-accumulation-fusion"])
    yield from needs(arguments, _TORCH_FSDP, ["--untie-embeddings-and-output-weights"])
    form = arguments.value("--ckpt-format")
    if form is not None and form not in ("torch_dist", "torch_dcp"):
        message = f"--ckpt-format {form} is given beside {_TORCH_FSDP}"
        yield Violation(where=arguments.locate("--ckpt-format"), message=message, hint="--ckpt-format torch_dist")


@lm_runs.rule("MLM022", ERROR, "init", megatron_lm("training/arguments.py:1167, 1674"))
def megatron_fsdp_has_its_checkpoints(run: Run) -> Violations:
    """Megatron FSDP writes checkpoints in the format fsdp_dtensor, and nothing else does.

    Prevents: AssertionError: Megatron-FSDP requires the `fsdp_dtensor` checkpointing format
    Fix: --ckpt-format fsdp_dtensor
    """
    arguments = run.arguments
    form, default = arguments.value("--ckpt-format"), "the default of torch_dist"
    if arguments.has(_MEGATRON_FSDP) and (arguments.lacks("--ckpt-format") or form not in (None, "fsdp_dtensor")):
        given = f"--ckpt-format {form}" if form else f"--ckpt-format at {default}"
        message = f"{_MEGATRON_FSDP} with {given}: it has one format, fsdp_dtensor"
        yield Violation(where=arguments.locate(_MEGATRON_FSDP), message=message, hint="--ckpt-format fsdp_dtensor")
    if form == "fsdp_dtensor" and arguments.lacks(_MEGATRON_FSDP):
        message = f"--ckpt-format fsdp_dtensor without {_MEGATRON_FSDP}"
        yield Violation(where=arguments.locate("--ckpt-format"), message=message, hint="--ckpt-format torch_dist")


@lm_runs.rule("MLM065", ERROR, "init", megatron_lm("training/arguments.py:1663-1671"))
def dcp_checkpoints_are_of_fsdp(run: Run) -> Violations:
    """The checkpoint format torch_dcp is for FSDP2 without tensor and pipeline parallelism.

    Prevents: AssertionError: --ckpt-format torch_dcp is only tested with FSDP
    Fix: --ckpt-format torch_dist
    """
    arguments = run.arguments
    if arguments.value("--ckpt-format") != "torch_dcp":
        return
    where = arguments.locate("--ckpt-format")
    if arguments.lacks(_TORCH_FSDP):
        yield Violation(
            where=where, message=f"--ckpt-format torch_dcp without {_TORCH_FSDP}", hint="--ckpt-format torch_dist"
        )
    for name in (TENSOR, PIPELINE):
        size = degree(arguments, name)
        if size is not None and size > 1:
            yield Violation(where=where, message=f"--ckpt-format torch_dcp with {name} {size}", hint=f"{name} 1")


@lm_runs.rule(
    "MLM025",
    ERROR,
    "init",
    megatron_lm("core/transformer/transformer_config.py:1901-1938; training/arguments.py:1425")
    + "; core/transformer/transformer_block.py:536 @ core_v0.16.1",
)
def recomputation_is_complete(run: Run) -> Violations:
    """Full recomputation has a method and a number of layers; selective has neither.

    Prevents: ValueError: recompute_method must be block or uniform; IndexError, or a loop without end
    Fix: a method and a number of layers with full, neither with selective
    """
    arguments = run.arguments
    kind = arguments.value("--recompute-granularity")
    parts = ("--recompute-method", "--recompute-num-layers")
    if kind == "selective" or (arguments.has("--recompute-activations") and kind is None):
        for part in parts:
            if arguments.has(part):
                message = f"{part} {arguments.value(part)} is given, but recomputation is selective"
                hint = f"no {part}, or --recompute-granularity full"
                yield Violation(where=arguments.locate(part), message=message, hint=hint)
    if kind != "full":
        return
    for part, value in zip(parts, ("uniform", "1"), strict=True):
        if arguments.lacks(part):
            message = f"--recompute-granularity full without {part}"
            yield Violation(where=arguments.locate("--recompute-granularity"), message=message, hint=f"{part} {value}")
    yield from _recomputed_layers_exist(arguments)


def _recomputed_layers_exist(arguments: MegatronArguments) -> Violations:
    """Units of uniform recomputation have a layer at least, and none has more layers than a stage."""
    name, method = "--recompute-num-layers", arguments.value("--recompute-method")
    count, layers, stages = arguments.integer(name), sized(arguments, "--num-layers"), degree(arguments, PIPELINE)
    if count is None:
        return
    if count < 1:
        message = f"{name} {count} is no number of layers"
        yield Violation(where=arguments.locate(name), message=message, hint=f"{name} 1")
    elif layers and stages and not any(map(arguments.has, _UNEVEN)) and count > -(-layers // stages):
        room = -(-layers // stages)
        message = f"{name} {count} is more than the {room} layers of a stage"
        severity = Severity.WARNING if method == "block" else None  # it recomputes all of them
        yield Violation(where=arguments.locate(name), message=message, hint=f"{name} {room}", severity=severity)


@lm_runs.rule("MLM066", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:1960-1990"))
def modules_to_recompute_exist(run: Run) -> Violations:
    """What is recomputed is a part that the model has, and is chosen under selective recomputation.

    Prevents: ValueError: moe_act in recompute_modules is only supported with moe_grouped_gemm
    Fix: remove the module, or give its option
    """
    arguments = run.arguments
    modules, where = arguments.value("--recompute-modules"), arguments.locate("--recompute-modules")
    if not isinstance(modules, tuple):
        return
    kind = arguments.value("--recompute-granularity")
    selective = kind == "selective" or arguments.has("--recompute-activations")
    parts = {"moe_act": "--moe-grouped-gemm", "mla_up_proj": "--multi-latent-attention"} if selective else {}
    for module, needed in parts.items():
        if module in modules and arguments.lacks(needed):
            message = f"--recompute-modules {module} without {needed}"
            yield Violation(where=where, message=message, hint=f"{needed}, or no {module}")
    if kind == "full" and not selective:
        message = f"--recompute-modules {' '.join(map(str, modules))} is ignored with --recompute-granularity full"
        hint = "--recompute-granularity selective"
        yield Violation(where=where, message=message, hint=hint, severity=Severity.WARNING)


@lm_runs.rule(
    "MLM026", ERROR, "init", megatron_lm("training/arguments.py:1410; core/transformer/transformer_config.py:1933")
)
def saved_activations_are_distributed_when_full(run: Run) -> Violations:
    """Saved activations are distributed over tensor ranks, under full recomputation, without sequence parallelism.

    Prevents: AssertionError
    Fix: remove --distribute-saved-activations
    """
    arguments = run.arguments
    name = "--distribute-saved-activations"
    if not arguments.has(name):
        return
    where, kind = arguments.locate(name), arguments.value("--recompute-granularity")
    if degree(arguments, TENSOR) == 1:
        yield Violation(where=where, message=f"{name} with {TENSOR} 1", hint=f"{TENSOR} 2, or no {name}")
    if arguments.lacks("--recompute-granularity") or kind == "selective":
        yield Violation(where=where, message=f"{name} without --recompute-granularity full", hint=f"no {name}")
    yield from excludes(arguments, _SEQUENCE, [name])


@lm_runs.rule("MLM027", ERROR, "init", megatron_lm("core/transformer/transformer_config.py:1883-1896"))
def layers_are_offloaded_alone(run: Run) -> Violations:
    """Layers are offloaded without pipeline stages and without recomputation, and fewer than there are.

    Prevents: ValueError: Currently there is no support for Pipeline parallelism with CPU offloading
    Fix: one stage, and no recomputation
    """
    arguments = run.arguments
    name, layers = "--cpu-offloading-num-layers", arguments.integer("--num-layers")
    count, stages = arguments.integer(name), degree(arguments, PIPELINE)
    if not count or count < 1:
        return
    where = arguments.locate(name)
    if stages is not None and stages > 1:
        yield Violation(where=where, message=f"{name} {count} with {PIPELINE} {stages}", hint=f"{PIPELINE} 1")
    for other in ("--recompute-granularity", "--recompute-activations"):
        yield from excludes(arguments, name, [other])
    if layers and count >= layers:
        message = f"{name} {count} is not less than --num-layers {layers}"
        yield Violation(where=where, message=message, hint=f"{name} {layers - 1}")


@lm_runs.rule("MLM028", ERROR, "init", megatron_lm("training/arguments.py:1884"))
def offloaded_optimizer_is_precision_aware(run: Run) -> Violations:
    """The optimizer that is offloaded is the precision-aware one; FP8 parameters then have the delayed recipe.

    Prevents: AssertionError
    Fix: --use-precision-aware-optimizer
    """
    arguments = run.arguments
    name, recipe = "--optimizer-cpu-offload", arguments.value("--fp8-recipe", "delayed")
    yield from needs(arguments, name, ["--use-precision-aware-optimizer"])
    if arguments.has(name) and arguments.has("--fp8-param-gather") and recipe not in (None, "delayed"):
        message = f"{name} with --fp8-param-gather needs --fp8-recipe delayed, not {recipe}"
        yield Violation(where=arguments.locate(name), message=message, hint="--fp8-recipe delayed")


@lm_runs.rule("MLM067", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py:433"))
def optimizer_types_have_their_optimizer(run: Run) -> Violations:
    """The precision-aware optimizer is Adam, and only it keeps masters, gradients and moments in less than fp32.

    Prevents: AssertionError: main_grads_dtype can only be fp32 when not using precision-aware optimizer
    Fix: --use-precision-aware-optimizer
    """
    arguments = run.arguments
    aware, kind = "--use-precision-aware-optimizer", arguments.value("--optimizer", "adam")
    if arguments.has(aware) and kind not in (None, "adam"):
        message = f"{aware} with --optimizer {kind}: it is Adam's"
        yield Violation(where=arguments.locate(aware), message=message, hint=f"no {aware}")
    for name in ("--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"):
        if arguments.value(name) not in (None, "fp32") and arguments.lacks(aware):
            message = f"{name} {arguments.value(name)} without {aware}"
            yield Violation(where=arguments.locate(name), message=message, hint=f"{aware}, or {name} fp32")
