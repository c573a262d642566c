"""Rules on Megatron-LM's arguments against each other: overlap, precision, data, positions,
experts, sharding, recomputation and offload.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from ....findings import ERROR, NOTE, Severity, Violations
from ....rules.violations import megatron_lm
from ..run import (
    CHUNKS,
    CONTEXT,
    EXPERT,
    LAYERS,
    LAYERS_PER_CHUNK,
    PIPELINE,
    STAGE_LAYOUT,
    TENSOR,
    UNEVEN,
    MegatronRun,
)
from .rule import CONFIG, at, divides, excludes, lm_arguments, lm_runs, needs, undivided

_DISTRIBUTED: Final = "--use-distributed-optimizer"
_POSITIONS: Final = "--position-embedding-type"
_ROTARY: Final = "--use-rotary-position-embeddings"
_TORCH_FSDP: Final = "--use-torch-fsdp2"
_MEGATRON_FSDP: Final = "--use-megatron-fsdp"
_FORMAT: Final = "--ckpt-format"
_GRANULARITY: Final = "--recompute-granularity"
_ACTIVATIONS: Final = "--recompute-activations"
_COUNT: Final = "--recompute-num-layers"
_EXPERTS: Final = "--num-experts"
_TOP: Final = "--moe-router-topk"
_PRE_SOFTMAX: Final = "--moe-router-pre-softmax"
_GROUPS: Final = "--moe-router-num-groups"
_TOP_GROUPS: Final = "--moe-router-group-topk"
_GRAPHS: Final = ("--enable-cuda-graph", "--external-cuda-graph")
#: Options for the types of gradients, masters and moments, which the optimizer keeps.
_TYPES_OF_STATES: Final = (
    "--main-grads-dtype",
    "--main-params-dtype",
    "--exp-avg-dtype",
    "--exp-avg-sq-dtype",
)


@lm_runs.rule("MLM020", ERROR, "init", megatron_lm("training/arguments.py:1024-1029, 1066-1074"))
def overlapped_gathers_have_their_optimizer(run: MegatronRun) -> Violations:
    """--overlap-param-gather comes with the distributed optimizer and --overlap-grad-reduce.
    Prevents: AssertionError: Must use --overlap-param-gather with --overlap-grad-reduce
    Fix: add --use-distributed-optimizer --overlap-grad-reduce"""
    gather, later = "--overlap-param-gather", "--overlap-param-gather-with-optimizer-step"
    if run.value("--optimizer", "adam") in ("adam", "sgd"):
        yield from needs(run, gather, _DISTRIBUTED, _MEGATRON_FSDP, "--use-custom-fsdp")
    yield from needs(run, gather, "--overlap-grad-reduce")
    yield from needs(run, later, _DISTRIBUTED)
    yield from needs(run, later, gather)
    yield from needs(run, later, CHUNKS, LAYERS_PER_CHUNK, STAGE_LAYOUT)
    if run.has(later) and run.choice(_FORMAT, "torch_dist") not in (None, "torch"):
        message = (
            f"{later} with {run.shown(_FORMAT, 'torch_dist')}, which is a distributed checkpoint"
        )
        yield at(run, later, message, f"use {_FORMAT} torch, or remove {later}")


@lm_runs.rule("MLM023", ERROR, "init", megatron_lm("training/arguments.py:1095-1100"))
def low_precision_is_one_kind(run: MegatronRun) -> Violations:
    """FP8 parameters are gathered under FP8 by a sharding optimizer, and FP8 and FP4 exclude each
    other.
    Prevents: AssertionError, or ValueError
    Fix: use --fp8-format hybrid with the distributed optimizer
    """
    yield from needs(run, "--fp8-param-gather", "--fp8-format")
    yield from needs(
        run, "--fp8-param-gather", _DISTRIBUTED, _TORCH_FSDP, _MEGATRON_FSDP, "--use-custom-fsdp"
    )
    yield from needs(run, "--fp4-param-gather", "--fp4-format")
    yield from excludes(run, "--fp8-format", ["--fp4-format"])


@lm_arguments.rule("MLM024", ERROR, "init", megatron_lm("training/arguments.py:1195-1205"))
def one_half_precision(run: MegatronRun) -> Violations:
    """A run has one precision: fp16 or bf16.
    Prevents: AssertionError
    Fix: keep one precision"""
    return excludes(run, "--bf16", ["--fp16"])


@lm_runs.rule("MLM068", ERROR, "init", megatron_lm("training/arguments.py:1371"))
def half_precision_options_have_it(run: MegatronRun) -> Violations:
    """--fp16-lm-cross-entropy comes with --fp16, and --fp32-residual-connection with a half
    precision.
    Prevents: AssertionError: lm cross entropy in fp16 only support in fp16 mode
    Fix: remove the option
    """
    yield from needs(run, "--fp16-lm-cross-entropy", "--fp16")
    yield from needs(run, "--fp32-residual-connection", "--bf16", "--fp16")


@lm_runs.rule("MLM073", ERROR, "init", megatron_lm("training/arguments.py:1812"))
def masters_are_loaded_without_the_optimizer(run: MegatronRun) -> Violations:
    """--load-main-params-from-ckpt comes with --no-load-optim.
    Prevents: AssertionError: --load-main-params-from-ckpt must be used with --no-load-optim
    Fix: add --no-load-optim"""
    return needs(run, "--load-main-params-from-ckpt", "--no-load-optim")


@lm_runs.rule("MLM032", ERROR, "init", megatron_lm("training/arguments.py:1679"))
def data_has_one_source(run: MegatronRun) -> Violations:
    """Data comes from one source: --data-path, --mock-data, or paths for each split.
    Prevents: AssertionError: A single data source must be provided in training mode. A note of
    other programs.
    Fix: keep one source
    """
    splits = ("--train-data-path", "--valid-data-path", "--test-data-path")
    pairs = (
        ("--mock-data", ("--data-path", *splits)),
        ("--data-path", (*splits, "--data-args-path")),
        ("--per-split-data-args-path", splits),
    )
    for option, others in pairs:
        for violation in excludes(run, option, others):
            yield replace(violation, severity=NOTE) if run.is_anothers else violation


@lm_runs.rule("MLM036", ERROR, "init", megatron_lm("training/arguments.py:582-583"))
def context_sizes_multiply(run: MegatronRun) -> Violations:
    """The sizes of hierarchical context parallelism multiply to the context parallel size, and
    a2a+p2p needs them.
    Prevents: AssertionError
    Fix: use sizes that multiply to --context-parallel-size
    """
    name, communication = "--hierarchical-context-parallel-sizes", "--cp-comm-type"
    sizes, kinds = run.value(name), run.value(communication)
    are_known = isinstance(sizes, tuple) and all(isinstance(size, int) for size in sizes)
    if isinstance(sizes, tuple) and are_known and run.context and prod(sizes) != run.context:
        product = " × ".join(map(str, sizes))
        if len(sizes) > 1:
            product += f" = {prod(sizes)}"
        message = f"{name}: {product} is not {CONTEXT} {run.context}"
        yield at(run, name, message, f"use {CONTEXT} {prod(sizes)}")
    if isinstance(kinds, tuple) and "a2a+p2p" in kinds and run.lacks(name):
        message = f"{communication} a2a+p2p is given without {name}"
        yield at(run, communication, message, f"add {name} N M, with N × M = {CONTEXT}")


@lm_runs.rule("MLM069", ERROR, "init", megatron_lm("training/arguments.py:1443"))
def hybrid_context_parallelism_is_plain(run: MegatronRun) -> Violations:
    """Hybrid context parallelism runs without pipeline, CUDA graphs and FSDP, with a loss per
    token.
    Prevents: AssertionError: Hybrid context parallelism not supported with ...
    Fix: remove the option that it isn't supported with
    """
    name = "--hybrid-context-parallel"
    yield from undivided(run, name, PIPELINE)
    yield from excludes(run, name, ["--enable-cuda-graph", _MEGATRON_FSDP])
    yield from needs(run, name, "--calculate-per-token-loss")


@lm_runs.rule("MLM070", ERROR, "init", megatron_lm("training/arguments.py:1634-1646"))
def positions_have_their_options(run: MegatronRun) -> Violations:
    """--no-position-embedding is gone, multimodal positions have sections, relative ones need
    Transformer Engine.
    Prevents: RuntimeError: --no-position-embedding is deprecated, use --position-embedding-type
    Fix: use --position-embedding-type
    """
    kind, gone, sections = run.value(_POSITIONS), "--no-position-embedding", "--mrope-section"
    if run.has(gone) and kind != "rope" and not run.has(_ROTARY) and run.sure(_POSITIONS, _ROTARY):
        yield at(run, gone, f"{gone} is refused without rotary positions", f"use {_POSITIONS} none")
    if kind == "mrope" and run.lacks(sections):
        message = f"{_POSITIONS} mrope is given without {sections}"
        yield at(run, _POSITIONS, message, f"add {sections} 16 24 24")
    if kind == "relative" and run.value("--transformer-impl") == "local":
        message = f"{_POSITIONS} relative with --transformer-impl local"
        yield at(run, _POSITIONS, message, "use --transformer-impl transformer_engine")


@lm_runs.rule("MLM071", ERROR, "init", megatron_lm("training/arguments.py:883"))
def further_tokens_have_rotary_positions(run: MegatronRun) -> Violations:
    """Multi-token prediction runs with rotary positions, or none.
    Prevents: AssertionError: Multi-Token Prediction (MTP) is not supported with ...
    Fix: use --position-embedding-type rope"""
    name = "--mtp-num-layers"
    count = run.integer(name)
    if not count or run.has(_ROTARY) or not run.sure(_POSITIONS, _ROTARY):
        return
    kind = run.value(_POSITIONS, "learned_absolute")
    if kind in ("learned_absolute", "relative"):
        yield at(run, name, f"{name} {count} with {_POSITIONS} {kind}", f"use {_POSITIONS} rope")


@lm_runs.rule("MLM072", ERROR, "init", megatron_lm(f"training/arguments.py:609-620, {CONFIG}:2801"))
def graphs_are_captured_one_way(run: MegatronRun) -> Violations:
    """CUDA graphs are captured by one implementation, and hold no offloaded layers.
    Prevents: AssertionError
    Fix: keep one"""
    name, offloaded = "--cuda-graph-impl", "--cpu-offloading-num-layers"
    chosen = run.value(name) not in (None, "none")
    if chosen:
        yield from excludes(run, name, _GRAPHS)
    yield from excludes(run, _GRAPHS[0], _GRAPHS[1:])
    if (run.integer(offloaded) or 0) > 0:
        yield from excludes(run, offloaded, [name] if chosen else _GRAPHS)


@lm_runs.rule("MLM061", ERROR, "init", megatron_lm(f"{CONFIG}:2661"))
def routers_choose_among_experts(run: MegatronRun) -> Violations:
    """A token goes to at most all experts; routing to a single one needs --moe-router-pre-softmax.
    Prevents: ValueError: Please use --moe-router-pre-softmax when topk is 1, or a failing topk
    Fix: use fewer experts per token, or add --moe-router-pre-softmax"""
    experts, top = run.experts, run.setting(_TOP, 2)
    parser, strings = run.beside.parser, run.beside.strings
    # The default is of one version, and an older router has other options.
    is_of_router = run.has(_TOP) if parser is None else _TOP in strings
    if top is None or not is_of_router:
        return
    place = _TOP if run.has(_TOP) else _EXPERTS
    if experts and not 1 <= top <= experts:
        message = f"{run.shown(_TOP, 2)} with {_EXPERTS} {experts}"
        yield at(run, place, message, f"use {_TOP} {max(1, min(top, experts))}")
    is_older = parser is not None and _PRE_SOFTMAX not in strings  # which doesn't ask for it
    if top != 1 or is_older or not run.lacks(_PRE_SOFTMAX):
        return
    by_softmax = run.value("--moe-router-score-function", "softmax") == "softmax"
    balancing = run.value("--moe-router-load-balancing-type", ("aux_loss",))
    may_be_sinkhorn = balancing is None or (
        isinstance(balancing, tuple) and "sinkhorn" in balancing
    )
    if by_softmax and not may_be_sinkhorn:
        message = (
            f"{_TOP} 1 is given without {_PRE_SOFTMAX}: a softmax over one expert has no gradient"
        )
        yield at(run, place, message, f"add {_PRE_SOFTMAX}")


@lm_runs.rule("MLM062", ERROR, "init", megatron_lm(f"{CONFIG}:2670-2688"))
def router_groups_divide_experts(run: MegatronRun) -> Violations:
    """Group-limited routing has groups that divide the experts, and at least as many as are chosen.
    Prevents: AssertionError: num_moe_experts should be divisible by moe_router_num_groups
    Fix: use a number of groups that divides the experts"""
    groups, top = run.size(_GROUPS), run.size(_TOP_GROUPS)
    yield from needs(run, _TOP_GROUPS, _GROUPS)
    if run.has(_TOP_GROUPS):
        yield from divides(run, _GROUPS, run.experts, f"{_EXPERTS} {run.experts}")
    if groups and top and top > groups:
        message = f"{_TOP_GROUPS} {top} is more than {_GROUPS} {groups}"
        yield at(run, _TOP_GROUPS, message, f"use {_TOP_GROUPS} {groups}")


@lm_runs.rule(
    "MLM063", ERROR, "init", megatron_lm(f"{CONFIG}:1689, 1862; training/arguments.py:1983")
)
def expert_options_have_experts(run: MegatronRun) -> Violations:
    """Options of experts come with --num-experts, and padding to capacity with a capacity.
    Prevents: ValueError: moe_ffn_hidden_size is set but num_moe_experts is None
    Fix: add --num-experts, or remove the options of experts"""
    if not run.has("--moe-layer-freq"):
        yield from needs(run, "--moe-ffn-hidden-size", _EXPERTS)
    yield from needs(run, "--moe-latent-size", _EXPERTS)
    yield from needs(run, "--moe-pad-expert-input-to-capacity", "--moe-expert-capacity-factor")


@lm_runs.rule("MLM021", ERROR, "init", megatron_lm("training/arguments.py:1031-1049"))
def torch_fsdp_is_alone(run: MegatronRun) -> Violations:
    """PyTorch's FSDP2 runs without pipeline, experts, distributed optimizer, fp16 and tied
    embeddings.
    Prevents: AssertionError: --use-torch-fsdp2 is not supported with ...
    Fix: remove the option that it isn't supported with
    """
    if not run.has(_TORCH_FSDP):
        return
    for name, size in ((PIPELINE, run.pipeline), (EXPERT, run.expert)):
        if size is not None and size > 1:
            message = f"{name} {size} is given with {_TORCH_FSDP}"
            yield at(run, name, message, f"use {name} 1, or remove {_TORCH_FSDP}")
    yield from excludes(run, _TORCH_FSDP, [_DISTRIBUTED, "--fp16"])
    yield from needs(run, _TORCH_FSDP, "--no-gradient-accumulation-fusion")
    yield from needs(run, _TORCH_FSDP, "--untie-embeddings-and-output-weights")
    if run.value(_FORMAT) not in (None, "torch_dist", "torch_dcp"):
        message = f"{run.shown(_FORMAT)} is given with {_TORCH_FSDP}"
        yield at(run, _FORMAT, message, f"use {_FORMAT} torch_dist")


@lm_runs.rule("MLM022", ERROR, "init", megatron_lm("training/arguments.py:1167, 1674"))
def megatron_fsdp_has_its_checkpoints(run: MegatronRun) -> Violations:
    """Megatron FSDP writes checkpoints in the format fsdp_dtensor, and nothing else does.
    Prevents: AssertionError: Megatron-FSDP requires the `fsdp_dtensor` checkpointing format
    Fix: use --ckpt-format fsdp_dtensor"""
    if run.has(_MEGATRON_FSDP) and run.choice(_FORMAT, "torch_dist") not in (None, "fsdp_dtensor"):
        message = (
            f"{_MEGATRON_FSDP} with {run.shown(_FORMAT, 'torch_dist')}: it has one "
            "format, fsdp_dtensor"
        )
        yield at(run, _MEGATRON_FSDP, message, f"use {_FORMAT} fsdp_dtensor")
    if run.value(_FORMAT) == "fsdp_dtensor" and run.lacks(_MEGATRON_FSDP):
        message = f"{_FORMAT} fsdp_dtensor is given without {_MEGATRON_FSDP}"
        yield at(run, _FORMAT, message, f"use {_FORMAT} torch_dist")


@lm_runs.rule("MLM065", ERROR, "init", megatron_lm("training/arguments.py:1663-1671"))
def dcp_checkpoints_are_of_fsdp(run: MegatronRun) -> Violations:
    """The checkpoint format torch_dcp is for FSDP2 without tensor and pipeline parallelism.
    Prevents: AssertionError: --ckpt-format torch_dcp is only tested with FSDP
    Fix: use --ckpt-format torch_dist"""
    if run.value(_FORMAT) != "torch_dcp":
        return
    if run.lacks(_TORCH_FSDP):
        message = f"{_FORMAT} torch_dcp is given without {_TORCH_FSDP}"
        yield at(run, _FORMAT, message, f"use {_FORMAT} torch_dist")
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
            message = f"{_GRANULARITY} full is given without {part}"
            yield at(run, _GRANULARITY, message, f"add {part} {value}")
    if run.recomputes == "full":
        yield from _recomputed_layers(run)


def _recomputed_layers(run: MegatronRun) -> Violations:
    """Full recomputation of no layers, or of more than a stage has."""
    count = run.integer(_COUNT)
    if count is None:
        return
    if count < 1:
        yield at(run, _COUNT, f"{_COUNT} {count} is less than 1", f"use {_COUNT} 1")
    elif run.layers and run.pipeline and not run.has_any(*UNEVEN):
        layers_of_stage = -(-run.layers // run.pipeline)  # rounded up
        if count > layers_of_stage:
            in_blocks = run.value("--recompute-method") == "block"  # it recomputes all of them
            message = f"{_COUNT} {count} is more than the {layers_of_stage} layers of a stage"
            hint = f"use {_COUNT} {layers_of_stage}"
            severity = Severity.WARNING if in_blocks else None
            yield at(run, _COUNT, message, hint, severity=severity)


@lm_runs.rule("MLM066", ERROR, "init", megatron_lm(f"{CONFIG}:1960-1990"))
def modules_to_recompute_exist(run: MegatronRun) -> Violations:
    """--recompute-modules names parts that the model has, with selective recomputation.
    Prevents: ValueError: moe_act in recompute_modules is only supported with moe_grouped_gemm
    Fix: remove the module, or add its option"""
    name, modules = "--recompute-modules", run.value("--recompute-modules")
    if not isinstance(modules, tuple):
        return
    selective = run.value(_GRANULARITY) == "selective" or run.has(_ACTIVATIONS)
    for module, needed in (
        ("moe_act", "--moe-grouped-gemm"),
        ("mla_up_proj", "--multi-latent-attention"),
    ):
        if selective and module in modules and run.lacks(needed):
            message = f"{name} {module} is given without {needed}"
            yield at(run, name, message, f"add {needed}, or remove {module}")
    if run.value(_GRANULARITY) == "full" and not selective:
        message = f"{name} {' '.join(map(str, modules))} is ignored with {_GRANULARITY} full"
        yield at(run, name, message, f"use {_GRANULARITY} selective", severity=Severity.WARNING)


@lm_runs.rule("MLM026", ERROR, "init", megatron_lm(f"training/arguments.py:1410; {CONFIG}:1933"))
def saved_activations_are_distributed_when_full(run: MegatronRun) -> Violations:
    """Saved activations are distributed over tensor ranks, with full recomputation, without
    sequence parallelism.
    Prevents: AssertionError
    Fix: remove --distribute-saved-activations
    """
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
        message = f"{name} {count} is not less than {LAYERS} {run.layers}"
        yield at(run, name, message, f"use {name} {run.layers - 1}")


@lm_runs.rule("MLM028", ERROR, "init", megatron_lm("training/arguments.py:1884"))
def offloaded_optimizer_is_precision_aware(run: MegatronRun) -> Violations:
    """The offloaded optimizer is the precision-aware one; FP8 parameters then use the delayed
    recipe.
    Prevents: AssertionError
    Fix: add --use-precision-aware-optimizer
    """
    name, recipe = "--optimizer-cpu-offload", run.value("--fp8-recipe", "delayed")
    yield from needs(run, name, "--use-precision-aware-optimizer")
    if run.has(name) and run.has("--fp8-param-gather") and recipe not in (None, "delayed"):
        message = f"{name} with --fp8-param-gather needs --fp8-recipe delayed, not {recipe}"
        yield at(run, name, message, "use --fp8-recipe delayed")


@lm_runs.rule("MLM067", ERROR, "init", megatron_lm("core/optimizer/optimizer_config.py:433"))
def optimizer_types_have_their_optimizer(run: MegatronRun) -> Violations:
    """The precision-aware optimizer is Adam, and only it keeps masters, gradients and moments in
    less than fp32.
    Prevents: AssertionError: main_grads_dtype can only be fp32 when not using precision-aware
    optimizer
    Fix: add --use-precision-aware-optimizer
    """
    aware, kind = "--use-precision-aware-optimizer", run.value("--optimizer", "adam")
    if run.has(aware) and kind not in (None, "adam"):
        message = f"{aware} with --optimizer {kind}: it exists for Adam only"
        yield at(run, aware, message, f"remove {aware}")
    for name in _TYPES_OF_STATES:
        if run.value(name) not in (None, "fp32") and run.lacks(aware):
            message = f"{run.shown(name)} is given without {aware}"
            yield at(run, name, message, f"add {aware}, or use {name} fp32")
