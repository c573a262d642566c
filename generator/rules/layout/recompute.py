"""Rules on saving memory: offload to the host, LoRA against offload and tensor parallelism, and
recomputation of activations.
"""

from __future__ import annotations

from math import gcd
from typing import cast

from ...estimate.layout import Layout, LayoutLike, Modules, Offload, Recompute
from ...estimate.stages import chunk_sizes, divides_chunks
from ...findings import ERROR, NOTE, WARNING
from ...job.records import Job
from ...rule import InFiles
from ..planned import (
    Judgement,
    composed_layouts,
    detail_layouts,
    distributed_layouts,
    elsewhere,
    exchange_layouts,
    given,
    implies,
    layouts,
    ordinary_layouts,
    parallel_layouts,
    partition_layouts,
    replaced_layouts,
)
from ..violations import (
    deepspeed,
    deepspeed_0_19_8,
    derived,
    divisors,
    listed,
    megatron_deepspeed,
    megatron_lm,
    nearest,
)
from .identities import RECOMPUTE_DETAILS

#: Optimizers that DeepSpeed can run on the host.
HOST_OPTIMIZERS = ("adam", "adamw")


_other_optimizers = layouts(
    "offload", applies=lambda job: job.training.optimizer not in HOST_OPTIMIZERS
)


@partition_layouts("offload", "zero_stage").rule(
    "ZERO043", ERROR, "silent", derived("stages 1 to 3 read zero_optimization.offload_optimizer")
)
def offload_needs_sharding(job: Job, layout: LayoutLike) -> Judgement:
    """Offload needs ZeRO stage 1 or higher.
    Prevents: No error: the key has no effect, and the optimizer stays on the device.
    Fix: set layout.zero_stage to 1 or higher, or offload to none"""
    yield (layout.offload == Offload.NONE) | (layout.zero_stage >= 1)
    message = (
        f"{given(job, layout, 'offload', 'zero_stage')} has no effect: offload "
        "requires at least stage 1"
    )
    yield message, f"use {job.says('zero_stage', 1)}, or {job.says('offload', Offload.NONE)}"


@partition_layouts("offload", "zero_stage").rule(
    "ZERO006", ERROR, "silent", deepspeed("runtime/zero/config.py:157")
)
def parameter_offload_needs_stage_3(job: Job, layout: LayoutLike) -> Judgement:
    """Offload of parameters needs ZeRO stage 3.
    Prevents: No error: offload_param is silently ignored, and the job could run out of memory.
    Fix: set layout.zero_stage to 3, or offload to optimizer"""
    yield (layout.offload != Offload.OPTIMIZER_AND_PARAMETERS) | (layout.zero_stage == 3)
    both = given(job, layout, "offload", "zero_stage")
    message = f"{both} keeps the parameters on the device: their offload requires stage 3"
    yield message, f"use {job.says('zero_stage', 3)}, or {job.says('offload', Offload.OPTIMIZER)}"


# Runs at stage 1 in bf16 end well, on 4 and 8 GPUs of a public repository too, so that files get a
# note.
@partition_layouts("offload", "pipeline").rule(
    "PIPE016", ERROR, "init", "deepspeedai/Megatron-DeepSpeed issue 369", InFiles(severity=NOTE)
)
def offload_excludes_pipeline(job: Job, layout: LayoutLike) -> Judgement:
    """Offload is not combined with DeepSpeed's pipeline engine.
    Prevents: Training is known to fail in the pipeline engine when optimizer states are on the
    host.
    Fix: set layout.offload to none, or pipeline to 1
    """
    yield (layout.offload == Offload.NONE) | (layout.pipeline == 1)
    message = (
        f"{given(job, layout, 'offload', 'pipeline')} is known to fail in "
        "DeepSpeed's pipeline engine"
    )
    yield message, f"use {job.says('offload', Offload.NONE)}, or {job.says('pipeline', 1)}"


@_other_optimizers.rule("ZERO044", ERROR, "training", deepspeed("runtime/engine.py:2040"))
def offload_needs_host_optimizer(job: Job, layout: LayoutLike) -> Judgement:
    """An offloaded optimizer is one that runs on the host: Adam or AdamW.
    Prevents: DeepSpeed stops at start: with offload the optimizer has to be its own for the CPU.
    Fix: set training.optimizer to adamw, or offload to none"""
    yield layout.offload == Offload.NONE
    optimizer = job.says("optimizer", job.training.optimizer)
    message = f"{job.says('offload', layout.offload)} with {optimizer}, which has no host version"
    yield (
        message,
        f"use {job.says('offload', Offload.NONE)}, or training.{job.says('optimizer', 'adamw')}",
    )


@distributed_layouts("offload", "zero_stage").rule(
    "MLM028", ERROR, "init", megatron_lm("training/arguments.py:1884")
)
def megatron_offload_needs_distributed_optimizer(job: Job, layout: LayoutLike) -> Judgement:
    """Offload in Megatron-LM needs the distributed optimizer.
    Prevents: Megatron-LM stops at start on an assertion: the optimizer on the host has to be
    precision-aware.
    Fix: set layout.zero_stage to 1, or offload to none
    """
    yield (layout.offload == Offload.NONE) | (layout.zero_stage == 1)
    message = (
        f"{given(job, layout, 'offload', 'zero_stage')} is refused: offload requires the "
        "distributed optimizer, stage 1"
    )
    yield message, f"use {job.says('zero_stage', 1)}, or {job.says('offload', Offload.NONE)}"


@distributed_layouts("offload").rule(
    "MLM043", ERROR, "silent", derived("--optimizer-cpu-offload moves optimizer states only")
)
def megatron_keeps_parameters(job: Job, layout: LayoutLike) -> Judgement:
    """Megatron-LM offloads optimizer states, never parameters.
    Prevents: No error: parameters would stay on the device, and the job could run out of memory.
    Fix: set layout.offload to optimizer"""
    yield layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    yield elsewhere(job, layout, "offload", Offload.OPTIMIZER)


_fp8_weights = distributed_layouts(
    "offload",
    applies=lambda job: job.training.fp8_parameters and job.training.scaling != "delayed",
)


@_fp8_weights.rule(
    "PREC034", ERROR, "init", megatron_lm("training/arguments.py:1195 (core_v0.16.1)")
)
def offload_takes_delayed_scales(job: Job, layout: LayoutLike) -> Judgement:
    """Weights in fp8 whose optimizer is on the host are scaled by earlier maxima.
    Prevents: AssertionError: When --fp8-param-gather is enabled, the optimizer cpu offload must be
    used in conjunction with --fp8-recipe delayed.
    Fix: set layout.offload to none, or remove fp8_parameters"""
    yield layout.offload == Offload.NONE
    narrowest = job.training.precision == "nvfp4"  # whose optimizer has no shard of a weight
    key = "precision" if narrowest else "fp8_recipe"
    recipe = job.says(key, getattr(job.training, key))
    message = (
        f"{given(job, layout, 'offload')} with {job.says('fp8_parameters', True)} and {recipe} is "
        "refused"
    )
    yield message, f"use {job.says('offload', Offload.NONE)}, or remove fp8_parameters"


_adapted = replaced_layouts("tensor", applies=lambda job: job.training.lora is not None)
_quantized = layouts(
    "offload",
    applies=lambda job: (
        job.framework.adapters is not None and getattr(job.training.lora, "base", None) == "4bit"
    ),
)


_fused_adapters = distributed_layouts(
    "zero_stage", applies=lambda job: job.training.lora is not None
)


@_fused_adapters.rule(
    "LORA012", ERROR, "init", derived("Megatron FSDP's units hold frozen and trained parameters")
)
def adapters_exclude_megatron_fsdp(job: Job, layout: LayoutLike) -> Judgement:
    """Adapters in Megatron are trained with its distributed optimizer, not with Megatron FSDP.
    Prevents: a start that no release was seen to make: units of FSDP would hold frozen parameters
    beside trained ones.
    Fix: set layout.zero_stage to 1 or 0
    """
    yield layout.zero_stage <= 1
    message = f"{given(job, layout, 'zero_stage')} with training.lora is not planned"
    yield message, f"use {job.says('zero_stage', 1)}"


@_adapted.rule(
    "LORA010", ERROR, "training", deepspeed_0_19_8("module_inject/auto_tp.py (LinearAllreduce)")
)
def lora_excludes_autotp(job: Job, layout: LayoutLike) -> Judgement:
    """LoRA is trained without tensor parallelism.
    Prevents: Shapes differ in the first pass: a cut layer reads a part of its input, and its
    adapter all of it.
    Fix: set layout.tensor to 1, and layout.zero_stage to 3 where the model doesn't fit
    """
    yield layout.tensor == 1
    message = (
        f"{job.says('tensor', layout.tensor)} with training.lora: AutoTP does not cut adapters"
    )
    yield message, f"use {job.says('tensor', 1)}"


@_quantized.rule(
    "LORA011",
    ERROR,
    "training",
    derived("bitsandbytes keeps scales of 4-bit weights on the device"),
)
def four_bits_stay_on_the_device(job: Job, layout: LayoutLike) -> Judgement:
    """A base in 4 bits is not offloaded to the host.
    Prevents: The first pass fails: bitsandbytes multiplies quantized weights with their scales on
    one device.
    Fix: set layout.offload to none or optimizer, or training.lora.base to unquantized
    """
    yield layout.offload != Offload.OPTIMIZER_AND_PARAMETERS
    message = (
        f"{job.says('offload', layout.offload)} with base: 4bit puts quantized weights on the host"
    )
    yield message, f"use {job.says('offload', Offload.NONE)}, or base: unquantized"


def _none_or_full(job: Job) -> str:
    return f"use {job.says('recompute', 'none', 'full')}"


_SELECTIVE = megatron_deepspeed("megatron/model/transformer.py:629")
_CORE_ATTENTION = megatron_lm(
    "core/transformer/transformer_config.py (a warning: no need to recompute core_attn)"
)
_BLOCK = "core/transformer/transformer_block.py"
_CONFIG = "core/transformer/transformer_config.py"
_without_details = partition_layouts(*RECOMPUTE_DETAILS)
_with_details = parallel_layouts(*RECOMPUTE_DETAILS, "recompute")
_groups = detail_layouts("recompute_layers", "recompute_group")
_split_groups = parallel_layouts(
    "recompute_group", "pipeline", "virtual_pipeline", "first_stage_layers", "last_stage_layers"
)
_modules = detail_layouts("recompute_modules", "recompute")
_fp8 = detail_layouts(
    "recompute_modules",
    "recompute",
    applies=lambda job: job.training.precision == "fp8" and job.training.fp8_recipe == "delayed",
)
_flash = composed_layouts(
    "recompute",
    "recompute_modules",
    applies=lambda job: job.training.attention == "flash" and job.pins.recompute is None,
)


def own_modules(job: Job) -> Modules:
    """The modules of the model that Megatron-LM recomputes by themselves.

    **Source**: core_v0.16.1 core/models/gpt/gpt_layer_specs.py: with Transformer Engine a layernorm
    is a module before latent attention and before experts, else a part of the product behind it;
    training/arguments.py: grouped products need compute capability 8.
    """
    modules = Modules.CORE_ATTN
    for layer in job.model.stack.kinds:
        modules |= Modules.of((*layer.mixer.modules, *layer.feed_forward.modules))
    if not job.cluster.accelerator.generation.grouped_products:
        modules &= ~Modules.MOE_ACT
    return modules


#: Sets of modules that are tried, the cheapest to repeat first. A model may lack some of a set.
_LIGHT = Modules.LAYERNORM | Modules.MOE_ACT
_MEDIUM = _LIGHT | Modules.MLA_UP_PROJ
_SETS = (
    Modules.LAYERNORM,
    Modules.MOE_ACT,
    Modules.MLA_UP_PROJ,
    _LIGHT,
    _MEDIUM,
    Modules.MLP,
    Modules.MOE,
    _MEDIUM | Modules.SHARED_EXPERTS | Modules.MLP,
    _MEDIUM | Modules.MLP,
    Modules.MOE | Modules.MLP,
    _MEDIUM & ~Modules.MOE_ACT | Modules.MOE | Modules.MLP,
)


def module_choices(job: Job) -> list[Modules]:
    """Sets of modules that are worth a try between no and full recomputation.

    With other values of other fields they may break rules.
    """
    if not job.engine.has("recompute_modules"):
        return []
    own = own_modules(job) & ~Modules.CORE_ATTN
    if job.training.is_narrow:
        own &= ~_LIGHT
    attention = Modules.CORE_ATTN if job.training.attention == "unfused" else Modules(0)
    of_model = dict.fromkeys(modules & own for modules in _SETS if modules & own)
    return [modules | attention for modules in of_model]


def says_modules(job: Job, modules: Modules) -> str:
    """The key of a job with the names of modules."""
    return job.says("recompute_modules", f"[{', '.join(modules.labels)}]")


def _details_of(job: Job, layout: LayoutLike) -> str:
    """The first detail that is set, as the job says it."""
    if layout.recompute_layers > 0:
        return job.says("recompute_layers", layout.recompute_layers)
    if layout.recompute_group > 1:
        return job.says("recompute_group", layout.recompute_group)
    return says_modules(job, Modules(int(layout.recompute_modules)))


@ordinary_layouts("recompute").rule(
    "ACT006", ERROR, "silent", derived("gradient_checkpointing repeats whole layers")
)
def recompute_is_all_or_nothing(job: Job, layout: LayoutLike) -> Judgement:
    """Recomputation outside of Megatron's layers is none or full: checkpointing repeats whole
    layers.
    Prevents: No error: the script's checkpointing wraps whole layers, so memory would differ from
    the plan.
    Fix: set layout.recompute to full or none, or use a Megatron framework, which can repeat
    attention alone
    """
    yield layout.recompute != Recompute.SELECTIVE
    says = job.says("recompute", Recompute.SELECTIVE)
    yield (
        f"{says} is not available with {job.says('framework', job.framework)}",
        _none_or_full(job),
    )


@exchange_layouts("recompute", "context", "attention").rule(
    "MDS021", ERROR, "silent", _SELECTIVE, InFiles(severity=WARNING)
)
def recompute_reaches_attention(job: Job, layout: LayoutLike) -> Judgement:
    """Selective recomputation in Megatron-DeepSpeed needs unfused attention without Ulysses.
    Prevents: No error: the option would be ignored, activations would stay, and the job could run
    out of memory.
    Fix: set layout.recompute to full or none, or training.attention to unfused without context
    parallelism
    """
    attention = job.training.attention
    yield implies(
        layout.recompute == Recompute.SELECTIVE, (layout.context == 1) & (attention == "unfused")
    )
    others = f"{job.says('attention', attention)} and {job.says('context', layout.context)}"
    yield (
        f"{job.says('recompute', Recompute.SELECTIVE)} has no effect with {others}",
        _none_or_full(job),
    )


@_flash.rule("ACT007", ERROR, "silent", _CORE_ATTENTION)
def recompute_saves_memory(job: Job, layout: LayoutLike) -> Judgement:
    """Selective recomputation of the attention alone is not combined with fused attention, which
    keeps no scores.
    Prevents: No error: steps take longer and memory stays the same, and Megatron-LM warns.
    Fix: set layout.recompute to none or full, or recompute other modules; pin selective to have it
    anyway
    """
    yield (layout.recompute != Recompute.SELECTIVE) | (
        layout.recompute_modules != int(Modules.CORE_ATTN)
    )
    selective = job.says("recompute", Recompute.SELECTIVE)
    message = f"{selective} saves no memory with {job.says('attention', job.training.attention)}"
    yield message, f"{_none_or_full(job)}, or pin layout.{selective}"


@_without_details.rule(
    "ACT010",
    ERROR,
    "silent",
    derived("checkpointing outside of Megatron repeats every layer by itself"),
)
def recompute_has_no_details(job: Job, layout: LayoutLike) -> Judgement:
    """Recomputation of some layers or modules, or of groups of layers, is what the framework has.
    Prevents: No error: the script would repeat every layer by itself, and memory would differ from
    the plan.
    Fix: leave out recompute_layers, recompute_modules and recompute_group, or use framework:
    megatron-lm
    """
    whole = (layout.recompute_layers == 0) & (layout.recompute_modules == int(Modules.CORE_ATTN))
    yield whole & (job.engine.has("recompute_group") | (layout.recompute_group == 1))
    message = (
        f"{_details_of(job, layout)} cannot be set with {job.says('framework', job.framework)}"
    )
    yield message, f"use {job.says('framework', 'megatron-lm')}, or leave it out"


@_with_details.rule(
    "ACT011", ERROR, "silent", derived("the options of one granularity mean nothing with another")
)
def details_go_with_their_kind(job: Job, layout: LayoutLike) -> Judgement:
    """Layers and groups belong to full recomputation, modules to selective.
    Prevents: No error: the setting would be ignored, and memory would differ from the plan.
    Fix: set layout.recompute to full for layers and groups, to selective for modules"""
    in_layers = (layout.recompute_layers > 0) | (layout.recompute_group > 1)
    in_modules = layout.recompute_modules != int(Modules.CORE_ATTN)
    full, selective = layout.recompute == Recompute.FULL, layout.recompute == Recompute.SELECTIVE
    yield implies(in_layers, full) & implies(in_modules, selective)
    message = (
        f"{_details_of(job, layout)} means nothing with {job.says('recompute', layout.recompute)}"
    )
    fitting = Recompute.FULL if in_layers else Recompute.SELECTIVE
    yield message, f"use {job.says('recompute', fitting)}, or leave it out"


@_groups.rule("MLM081", ERROR, "init", megatron_lm(f"{_BLOCK}:532-566 (core_v0.16.1)"))
def layers_are_repeated_one_way(job: Job, layout: LayoutLike) -> Judgement:
    """Full recomputation repeats a number of layers of each chunk, or groups of layers, not both.
    Prevents: Megatron-LM has one number for both: the plan could not be started.
    Fix: leave out layout.recompute_layers or layout.recompute_group"""
    yield (layout.recompute_layers == 0) | (layout.recompute_group == 1)
    both = (
        job.says(name, getattr(layout, name)) for name in ("recompute_layers", "recompute_group")
    )
    yield " and ".join(both) + " are not combined", f"use {job.says('recompute_group', 1)}"


@_split_groups.rule(
    "MLM082",
    ERROR,
    "training",
    megatron_lm("core/transformer/transformer_block.py:536 @ core_v0.16.1"),
)
def groups_divide_chunks(job: Job, layout: LayoutLike) -> Judgement:
    """The layers that are recomputed together divide those of every chunk.
    Prevents: The first step fails on an index beyond the chunk's last layer.
    Fix: set layout.recompute_group to a divisor of the layers of a chunk, or to 1"""
    yield divides_chunks(job, layout)
    sizes = sorted(set(chunk_sizes(job, cast(Layout, layout))))
    message = (
        f"{job.says('recompute_group', layout.recompute_group)} does not divide chunks of "
        f"{listed(sizes)} layers"
    )
    dividing = nearest(divisors(gcd(*sizes)), layout.recompute_group, 3)
    yield message, f"use {job.says('recompute_group', *dividing)}"


@_modules.rule("MLM083", ERROR, "init", megatron_lm(f"{_CONFIG}:1213-1238 (core_v0.16.1)"))
def modules_are_in_the_model(job: Job, layout: LayoutLike) -> Judgement:
    """Selective recomputation repeats modules that the model has.
    Prevents: Megatron-LM stops at start for moe_act and mla_up_proj; the others are ignored, and
    memory stays the same.
    Fix: leave the modules out of layout.recompute_modules that the model doesn't have
    """
    others = layout.recompute_modules & ~int(own_modules(job))
    yield implies(layout.recompute == Recompute.SELECTIVE, others == 0)
    absent = ", ".join(Modules(int(others)).labels)
    message = (
        f"recompute_modules names {absent}, which {job.model.name} does not have as "
        "a module of its own"
    )
    present = own_modules(job) & int(layout.recompute_modules) or own_modules(job)
    yield message, f"use {says_modules(job, present)}"


@_fp8.rule("MLM084", ERROR, "init", megatron_lm(f"{_CONFIG}:1241-1252 (core_v0.16.1)"))
def delayed_scaling_keeps_outputs(job: Job, layout: LayoutLike) -> Judgement:
    """With fp8 and delayed scaling, moe_act and layernorm are not recomputed.
    Prevents: Megatron-LM stops at start: delayed scaling does not support moe_act and layernorm
    recompute for fp8.
    Fix: leave moe_act and layernorm out of layout.recompute_modules, or set training.fp8_recipe
    """
    refused = layout.recompute_modules & int(Modules.MOE_ACT | Modules.LAYERNORM)
    yield implies(layout.recompute == Recompute.SELECTIVE, refused == 0)
    names = " and ".join(Modules(int(refused)).labels)
    rest = Modules(int(layout.recompute_modules) & ~int(refused)) or Modules.CORE_ATTN
    message = (
        f"recompute_modules names {names} with {job.says('precision', job.training.precision)}"
    )
    yield message, f"use {says_modules(job, rest)}"
