"""AutoTP, Ulysses, pipeline stages and AutoEP in DeepSpeed configs: the sizes of their groups, and
what they go with.
"""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Version, Violation, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, divisors, listed, suggest, violation
from ....text.wording import escape
from ..config import ZERO, Config
from .running import passes_of
from .subjects import Run, configs, divides, refused_with, runs, setting, shown, to_remove, unused

_AUTOTP: Final = "/tensor_parallel/autotp_size"
_ULYSSES: Final = "/sequence_parallel_size"
_TP_SIZE: Final = "/tensor_parallel/tp/tp_size"
#: The models that AutoTP has presets for.
_MODELS: Final = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")
_DATA: Final = "/data_parallel_size"
#: What the pipeline engine reads of its block; `stages`, `partition` and `seed_layers` have
#: defaults and no reader.
_READ: Final = (
    "activation_checkpoint_interval",
    "pipe_partitioned",
    "grad_partitioned",
    "use_reentrant",
)
#: The configs that split a model, or sequences.
_autotp: Final = runs.where(lambda run: (run.config.whole(_AUTOTP) or 0) > 1)
_ulysses: Final = runs.where(lambda run: (run.config.whole(_ULYSSES) or 0) > 1)


@runs.rule("TP001", ERROR, "init", deepspeed("utils/groups.py:100"))
def tensor_ranks_divide_the_gpus(run: Run) -> Violations:
    """autotp_size divides the GPUs.
    Prevents: `N is not divisible by M` when the groups are made
    Fix: set it to a divisor of the GPUs"""
    yield from divides(run.config, _AUTOTP, run.world.gpus)


@_autotp.rule("TP003", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1020"))
def tensor_sizes_agree(run: Run) -> Violations:
    """tensor_parallel.tp.tp_size is 1 or autotp_size.
    Prevents: `tensor_parallel.tp.tp_size does not match tensor_parallel.autotp_size`
    Fix: write only autotp_size"""
    tp_size, size = run.config.whole(_TP_SIZE), run.config.whole(_AUTOTP)
    if tp_size is not None and tp_size not in (1, size):
        message = f"tp_size: {tp_size} does not match autotp_size: {size}"
        hint = f"set tp_size to {size}, or remove it"
        yield violation(run.config, _TP_SIZE, message, hint)


@configs.rule("TP007", ERROR, "silent", deepspeed_0_19_8("runtime/engine.py:592"))
def autotp_is_switched_on(config: Config) -> Violations:
    """tensor_parallel sets autotp_size: where it is not above 1, the rest of the block has no
    effect.
    Prevents: Nothing is split over tensor ranks, and memory runs out.
    Fix: set autotp_size
    """
    tp_size, is_written = config.whole(_TP_SIZE), config.has(_AUTOTP)
    size = config.whole(_AUTOTP) if is_written else 0
    if tp_size is not None and tp_size > 1 and size in (0, 1):
        default = "" if is_written else " by default"
        message = f"tp_size: {tp_size} has no effect: autotp_size is {size}{default}"
        yield violation(config, _TP_SIZE, message, f"set autotp_size to {tp_size}")


@_autotp.rule(
    "TP006",
    NOTE,
    "silent",
    deepspeed_0_19_8("runtime/config.py:463; __init__.py:554"),
    since=(0, 16, 4),
)
def tensor_ranks_read_one_batch(run: Run) -> Violations:
    """train_batch_size counts each tensor rank: with AutoTP and no mpu, DeepSpeed takes them for
    replicas.
    Prevents: A batch smaller than the one written, by the tensor parallel size.
    Fix: multiply by the tensor parallel size, or pass an mpu
    """
    if run.submission.has("Megatron arguments"):  # Megatron passes its mpu
        return
    config, gpus, pointer = run.config, run.world.gpus, "/train_batch_size"
    size, batch = config.whole(_AUTOTP) or 1, config.whole(pointer)
    if config.filled and config.value(pointer) == "auto":
        message = (
            f'train_batch_size: "auto" is filled in for all {gpus or "the"} GPUs, but '
            f"{size} tensor ranks read the same samples"
        )
        hint = f'write numbers in place of "auto", for 1/{size} as many replicas'
        yield violation(config, pointer, message, hint)

    job = run.submission.job
    is_multiplied = job is not None and batch == size * job.training.global_batch
    if not batch or not gpus or is_multiplied:
        return
    if gpus % size == 0 and batch % size == 0:
        message = (
            f"train_batch_size: {batch} counts each of {size} tensor ranks, which read the same "
            f"samples: a step has {batch // size} on {gpus} GPUs"
        )
        hint = f"write {size} × the intended batch, unless the script passes an mpu"
        yield violation(config, pointer, message, hint)


@configs.rule(
    "TP008",
    WARNING,
    "silent",
    deepspeed_0_19_8("module_inject/autotp_config.py:558"),
    since=(0, 18, 9),
)
def tensor_presets_are_known(config: Config) -> Violations:
    """tensor_parallel.preset_model is one of AutoTP's models.
    Prevents: The preset is silently not applied.
    Fix: name a known model"""
    pointer = "/tensor_parallel/preset_model"
    name = config.text(pointer)
    if name is not None and name.lower() not in _MODELS:
        message = (
            f"unknown preset_model {shown(name)} is silently ignored: AutoTP "
            "derives the layers itself"
        )
        yield violation(config, pointer, message, suggest(name, _MODELS))


@_ulysses.rule(
    "BATCH007",
    WARNING,
    "silent",
    deepspeed_0_19_8("runtime/config.py:474; __init__.py:543"),
    since=(0, 15, 4),
)
def sequence_mesh_is_made(run: Run) -> Violations:
    """sequence_parallel_size is written with data_parallel_size, unless the script passes an mpu.
    Prevents: No sequence parallelism, and a batch that is larger than the one written.
    Fix: add data_parallel_size"""
    config, size = run.config, run.config.whole(_ULYSSES)
    makes_own_groups = "autosp" in passes_of(config)
    passes_mpu = config.filled or run.submission.has("Megatron arguments")
    has_groups = passes_mpu or makes_own_groups or config.has(_DATA)
    if not has_groups:
        message = (
            f"sequence_parallel_size: {size} without data_parallel_size creates no sequence "
            f"groups: only the batch check divides the GPUs by {size}"
        )
        hint = 'add "data_parallel_size": GPUs / sequence ranks'
        yield violation(config, _ULYSSES, message, hint)


@runs.rule("SP007", ERROR, "init", deepspeed_0_19_8("__init__.py:543"), since=(0, 15, 4))
def mesh_fills_the_gpus(run: Run) -> Violations:
    """The product data_parallel_size × sequence_parallel_size is the number of GPUs.
    Prevents: A mesh that is larger than the world, or ranks that are in none.
    Fix: use a product that is the number of GPUs"""
    gpus, data, sequence = run.world.gpus, run.config.whole(_DATA), run.config.whole(_ULYSSES)
    if not gpus or not data or not sequence or data < 0 or sequence < 0:
        return
    product = data * sequence
    if product != gpus:
        message = (
            f"data_parallel_size: {data} × sequence_parallel_size: {sequence} = {product}, "
            f"but there are {gpus} GPUs"
        )
        if gpus % sequence:
            hint = f"set sequence_parallel_size to {listed(divisors(gpus)[:8])}"
        else:
            hint = f"set data_parallel_size to {gpus // sequence}"
        yield violation(run.config, _DATA, message, hint)


#: The configs of a submission with several pipeline stages.
_piped: Final = runs.where(lambda run: run.world.pipeline > 1)


@_piped.rule("PIPE010", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2662"))
def pipelines_reduce_at_the_end(run: Run) -> Violations:
    """With pipeline stages overlap_comm is off: gradients are reduced when the pipeline's schedule
    is at its end.
    Prevents: The setting silently has no effect.
    Fix: remove overlap_comm
    """
    config, pointer = run.config, f"{ZERO}/overlap_comm"
    if config.stage == 1 and config.switch(pointer):
        message = f"overlap_comm: true has no effect with {run.world.pipeline} pipeline stages"
        yield to_remove(config, pointer, message)


@runs.rule("PIPE008", ERROR, "init", deepspeed_0_19_8("runtime/pipe/engine.py:135"))
def pipeline_flags_are_flags(run: Run) -> Violations:
    """pipe_partitioned and grad_partitioned are true or false.
    Prevents: an assertion when the pipeline's engine starts
    Fix: write true or false"""
    for key in ("pipe_partitioned", "grad_partitioned"):
        value = run.config.value(f"/pipeline/{key}", True)
        if not isinstance(value, bool):
            message = (
                f"{key}: {shown(value)} is neither true nor false, which a "
                "PipelineModule's engine refuses"
            )
            hint = f"set {key} to true or false"
            severity = None if run.world.pipeline > 1 else WARNING
            yield violation(run.config, f"/pipeline/{key}", message, hint, severity=severity)


@configs.rule(
    "PIPE009",
    NOTE,
    "silent",
    deepspeed_0_19_8("runtime/config.py:272; runtime/pipe/engine.py:135, :211"),
)
def pipelines_are_code(config: Config) -> Violations:
    """The pipeline block has only keys that the engine reads: stages and partition are set in the
    script.
    Prevents: The settings silently have no effect.
    Fix: pass them to PipelineModule
    """
    unread = (f"/pipeline/{escape(key)}" for key in config.block("/pipeline") if key not in _READ)
    why = "here: nothing reads it, and stages and partition are arguments of PipelineModule"
    yield from unused(config, unread, why)


@_piped.rule("ELAS005", ERROR, "init", deepspeed("runtime/pipe/engine.py:92"), before=(0, 19, 8))
def elastic_jobs_have_no_stages(run: Run) -> Violations:
    """Elastic training runs without pipeline stages.
    Prevents: `Elasticity is not currently supported with pipeline parallelism`
    Fix: disable elasticity"""
    pointer = "/elasticity/enabled"
    if run.config.switch(pointer):
        message = (
            f"elasticity is enabled with {run.world.pipeline} pipeline stages, "
            "which DeepSpeed refuses"
        )
        yield violation(run.config, pointer, message, 'set "enabled" to false')


_EXPERTS: Final = "/expert_parallel"
_SIZE: Final = f"{_EXPERTS}/autoep_size"
_BACKEND: Final = f"{_EXPERTS}/comm_backend"
#: The choices of AutoEP's keys.
_CHOICES: Final = {
    "score_apply": ("auto", "pre", "post"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "comm_backend": ("comm", "deepep"),
    "score_func": ("auto", "softmax", "sigmoid"),
}
#: Sizes that are refused with AutoEP at stage 3: from which value on, in which release first, and
#: which release accepts them again, None for none yet (deepspeed/runtime/engine.py:1771, :1781 @
#: 0.19.3; :2176 @ 0.19.7).
_REFUSED_WITH_AUTOEP: Final[tuple[tuple[str, int, Version, Version | None], ...]] = (
    (_ULYSSES, 2, (), None),
    (f"{ZERO}/zero_hpz_partition_size", 2, (), None),
    (f"{ZERO}/zero_quantized_gradients", 1, (), None),
    (_AUTOTP, 2, (0, 19, 3), (0, 19, 8)),
    (f"{ZERO}/mics_shard_size", 1, (0, 19, 3), (0, 19, 7)),
)


def _has_autoep(config: Config) -> bool:
    return isinstance(config.value(_EXPERTS), dict) and bool(config.switch(f"{_EXPERTS}/enabled"))


_autoep: Final = configs.where(_has_autoep)


@runs.rule(
    "MOE006",
    ERROR,
    "init",
    deepspeed_0_19_8("module_inject/auto_ep_folding.py:110"),
    since=(0, 19, 2),
)
def expert_ranks_divide_the_gpus(run: Run) -> Violations:
    """autoep_size divides the GPUs of a pipeline stage: its groups are cut out of the data and
    context parallel ranks.
    Prevents: a ValueError when the groups are made
    Fix: set it to a divisor of the GPUs
    """
    gpus, stages = run.world.gpus, run.world.pipeline
    if gpus and gpus % stages == 0 and _has_autoep(run.config):
        yield from divides(run.config, _SIZE, gpus // stages, "the {} GPUs of a stage")


@runs.rule("MOE003", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage_1_and_2.py:864"))
def experts_have_contiguous_gradients(run: Run) -> Violations:
    """With experts, ZeRO reduces and scatters gradients, at stage 2 contiguous ones.
    Prevents: `Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE`
    Fix: set them to true"""
    config, stage = run.config, run.config.stage
    has_experts = _has_autoep(config) or _has_own_experts(run)
    if stage not in (1, 2) or not has_experts:
        return
    keys = []
    if stage == 2 or config.version >= (0, 19, 8):
        keys.append("reduce_scatter")
    if stage == 2 and not config.offloads("optimizer"):
        keys.append("contiguous_gradients")
    for key in keys:
        if config.switch(f"{ZERO}/{key}") is False:
            message = f"{key}: false is refused for experts at stage {stage}"
            hint = f"set {key} to true"
            yield violation(config, f"{ZERO}/{key}", message, hint)


def _has_own_experts(run: Run) -> bool:
    """Return whether Megatron-DeepSpeed's arguments ask for experts in DeepSpeed's own layers."""
    for arguments in run.submission.of_kind("Megatron arguments"):
        if arguments.flavour != "megatron-deepspeed":
            continue
        value = arguments.value("--num-experts")
        counts = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(count, int) and count > 1 for count in counts):
            return True
    return False


@_autoep.rule("MOE004", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:2219"), since=(0, 19, 2))
def autoep_at_stage_3_goes_alone(config: Config) -> Violations:
    """AutoEP at stage 3 runs without Ulysses, quantized gradients, second partitions and, before
    0.19.8, AutoTP.
    Prevents: `AutoEP with ZeRO Stage 3 does not support ... yet`
    Fix: remove one of the two
    """
    if config.stage != 3:
        return
    for pointer, least, first, accepted in _REFUSED_WITH_AUTOEP:
        in_release = first <= config.version and (accepted is None or config.version < accepted)
        refused = in_release and (config.number(pointer) or 0) >= least
        hint = f"use stage 1 or 2, or remove {pointer.rpartition('/')[2]}"
        yield from refused_with(config, pointer, {"AutoEP at stage 3": refused}, hint)


@_autoep.rule(
    "MOE008",
    ERROR,
    "init",
    deepspeed_0_19_8("module_inject/auto_ep_folding.py:214"),
    since=(0, 19, 8),
)
def autoep_cuts_no_expert(config: Config) -> Violations:
    """expert_tensor_parallel_size is 1: other sizes are reserved.
    Prevents: a ValueError when the groups are made
    Fix: remove it"""
    pointer = f"{_EXPERTS}/expert_tensor_parallel_size"
    if config.whole(pointer) not in (1, None):
        message = f"{setting(config, pointer)} is refused: only 1 is supported"
        yield violation(config, pointer, message, "set it to 1, or remove it")


@_autoep.rule(
    "MOE009",
    ERROR,
    "init",
    deepspeed_0_19_8("module_inject/auto_ep_config.py:180"),
    since=(0, 19, 8),
)
def autoep_choices_are_known(config: Config) -> Violations:
    """expert_parallel's choices are ones that AutoEP has.
    Prevents: a ValueError when the engine starts
    Fix: use one of the choices"""
    for key, choices in _CHOICES.items():
        value = config.value(f"{_EXPERTS}/{key}", choices[0])
        if value not in choices:
            message = f"{key}: {shown(value)} is not one of AutoEP's choices"
            hint = f"use {listed(choices)}"
            yield violation(config, f"{_EXPERTS}/{key}", message, hint)


@_autoep.rule(
    "MOE010",
    ERROR,
    "init",
    deepspeed_0_19_8("module_inject/auto_ep_config.py:232"),
    since=(0, 19, 8),
)
def deepep_knows_its_tokens(config: Config) -> Violations:
    """comm_backend deepep is used with comm_max_tokens_per_rank, the most tokens that a rank
    routes.
    Prevents: `comm_max_tokens_per_rank must be a positive integer when comm_backend='deepep'`
    Fix: add comm_max_tokens_per_rank
    """
    most_tokens = config.value(f"{_EXPERTS}/comm_max_tokens_per_rank", 0)
    if config.value(_BACKEND) == "deepep" and most_tokens == 0:
        message = 'comm_backend: "deepep" requires comm_max_tokens_per_rank'
        hint = "set comm_max_tokens_per_rank to micro batch × longest padded sequence"
        yield violation(config, _BACKEND, message, hint)


@_autoep.rule(
    "MOE011",
    ERROR,
    "init",
    deepspeed_0_19_8("module_inject/auto_ep_folding.py:240, :248"),
    since=(0, 19, 8),
)
def autoep_folds_over_experts(config: Config) -> Violations:
    """AutoEP with AutoTP has an autoep_size above 1, and no offload.
    Prevents: `AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1`
    Fix: use one of the two"""
    tensor = config.whole(_AUTOTP) or 1
    if tensor <= 1:
        return
    experts = config.whole(_SIZE) if config.has(_SIZE) else 1  # AutoEP's default
    if experts == 1:
        message = (
            f"autoep_size: 1 with autotp_size: {tensor} is refused: gradients would "
            f"count {tensor} times"
        )
        yield violation(config, _EXPERTS, message, "set autoep_size above 1, or autotp_size to 1")
    if config.offloads("optimizer") or (config.offloads("param") and config.stage == 3):
        message = f"AutoEP with autotp_size: {tensor} is refused with offload"
        yield violation(config, _EXPERTS, message, "remove the offload, or set autotp_size to 1")


@configs.rule(
    "MOE012",
    WARNING,
    "silent",
    deepspeed_0_19_8("module_inject/auto_ep_config.py:46"),
    since=(0, 19, 2),
)
def autoep_is_switched_on(config: Config) -> Violations:
    """expert_parallel is enabled where it has settings.
    Prevents: Experts are silently not distributed.
    Fix: set enabled to true"""
    if config.block(_EXPERTS) and not config.has(f"{_EXPERTS}/enabled"):
        message = "expert_parallel is not enabled, so its settings have no effect"
        yield Violation(config.locate_key(_EXPERTS), message, 'add "enabled": true')
