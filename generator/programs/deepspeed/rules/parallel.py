"""AutoTP, Ulysses and pipeline stages in DeepSpeed configs: the sizes of their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ....findings import ERROR, NOTE, WARNING, Severity, Version, Violation, Violations
from ....job.wording import escape
from ....rules.violations import deepspeed, deepspeed_now, divisors, listed, suggest, violation
from ...subjects import Subject, subject
from ...submission import Submission
from ...world import World, world_of
from ..config import ZERO, Config
from .subjects import Run, configs, runs, said, shown, to_remove, unused

AUTOTP: Final = "/tensor_parallel/autotp_size"
ULYSSES: Final = "/sequence_parallel_size"
_INNER: Final = "/tensor_parallel/tp/tp_size"
_BATCH: Final = "/train_batch_size"
_MODELS: Final = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")
_DATA: Final = "/data_parallel_size"
#: What the pipeline engine reads of its block; `stages`, `partition` and `seed_layers` have defaults and no reader.
_READ: Final = ("activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned", "use_reentrant")


class Split(NamedTuple):
    """A size above 1 at a pointer of a config, and the submission that the config belongs to."""

    config: Config
    submission: Submission
    pointer: str
    size: int

    @property
    def key(self) -> str:
        """The key with its size, in a message."""
        return f"{self.pointer.rpartition('/')[2]}: {self.size}"

    @property
    def world(self) -> World:
        """The GPUs and how they are divided."""
        return world_of(self.submission)

    def violation(self, problem: str, fits: Iterable[int]) -> Violation:
        """A violation at the size; `fits`: the sizes that pass."""
        hint = f"set {self.pointer.rpartition('/')[2]} to {listed(fits)}"
        return violation(self.config, self.pointer, f"{self.key} {problem}", hint)


def splits(pointer: str, is_used: Callable[[Config], bool] = lambda _: True) -> Subject[Split]:
    """The subject of rules on one size: the configs that have it, above 1, and use it."""

    @subject("DeepSpeed config")
    def found(submission: Submission) -> Iterator[Split]:
        for config in configs(submission):
            size = config.whole(pointer)
            if size and size > 1 and is_used(config):
                yield Split(config, submission, pointer, size)

    return found


_autotp: Final = splits(AUTOTP)


_ulysses: Final = splits(ULYSSES)


@_autotp.rule("TP001", ERROR, "init", deepspeed("utils/groups.py:100"))
def tensor_ranks_divide_the_gpus(split: Split) -> Violations:
    """autotp_size divides the GPUs.
    Prevents: `N is not divisible by M` when the groups are made
    Fix: set it to a divisor of the GPUs"""
    gpus = split.world.gpus
    if gpus and gpus % split.size:
        yield split.violation(f"does not divide {gpus} GPUs", divisors(gpus)[:8])


@_autotp.rule("TP003", ERROR, "init", deepspeed_now("runtime/engine.py:1020"))
def tensor_sizes_agree(split: Split) -> Violations:
    """tensor_parallel.tp.tp_size is 1 or autotp_size.
    Prevents: `tensor_parallel.tp.tp_size does not match tensor_parallel.autotp_size`
    Fix: write only autotp_size"""
    inner = split.config.whole(_INNER)
    if inner is not None and inner not in (1, split.size):
        message, hint = f"tp_size: {inner} does not match {split.key}", f"set tp_size to {split.size}, or remove it"
        yield violation(split.config, _INNER, message, hint)


@configs.rule("TP007", ERROR, "silent", deepspeed_now("runtime/engine.py:592"))
def autotp_is_switched_on(config: Config) -> Violations:
    """tensor_parallel sets autotp_size: where it is not above 1, the rest of the block has no effect.
    Prevents: Nothing is split over tensor ranks, and memory runs out.
    Fix: set autotp_size"""
    inner = config.whole(_INNER)
    size = config.whole(AUTOTP) if config.has(AUTOTP) else 0
    if inner is not None and inner > 1 and size in (0, 1):
        message = f"tp_size: {inner} has no effect: autotp_size is {size}{'' if config.has(AUTOTP) else ' by default'}"
        yield violation(config, _INNER, message, f"set autotp_size to {inner}")


@_autotp.rule("TP006", NOTE, "silent", deepspeed_now("runtime/config.py:463; __init__.py:554"), since=(0, 16, 4))
def tensor_ranks_read_one_batch(split: Split) -> Violations:
    """train_batch_size counts each tensor rank: with AutoTP and no mpu, DeepSpeed takes them for replicas.
    Prevents: A batch smaller than the one written, by the tensor parallel size.
    Fix: multiply by the tensor parallel size, or pass an mpu"""
    size, gpus, config, job = split.size, split.world.gpus, split.config, split.submission.job
    if split.submission.megatron:
        return
    if config.filled and config.value(_BATCH) == "auto":
        message = f'train_batch_size: "auto" is filled in for all {gpus or "the"} GPUs, but {size} tensor ranks'
        hint = f'write numbers in place of "auto", for 1/{size} as many replicas'
        yield violation(split.config, _BATCH, f"{message} read the same samples", hint)
    batch = config.whole(_BATCH)
    meant = job is not None and batch == size * job.training.global_batch
    if batch and gpus and not gpus % size and not batch % size and not meant:
        message = f"train_batch_size: {batch} counts each of {size} tensor ranks, which read the same samples:"
        hint = f"write {size} × the intended batch, unless the script passes an mpu"
        yield violation(split.config, _BATCH, f"{message} a step has {batch // size} on {gpus} GPUs", hint)


@configs.rule("TP008", WARNING, "silent", deepspeed_now("module_inject/autotp_config.py:558"), since=(0, 18, 9))
def tensor_presets_are_known(config: Config) -> Violations:
    """tensor_parallel.preset_model is one of AutoTP's models.
    Prevents: The preset is silently not applied.
    Fix: name a known model"""
    pointer = "/tensor_parallel/preset_model"
    name = config.text(pointer)
    if name is not None and name.lower() not in _MODELS:
        message = f"unknown preset_model {shown(name)} is silently ignored: AutoTP derives the layers itself"
        yield violation(config, pointer, message, suggest(name, _MODELS))


@_ulysses.rule("BATCH007", WARNING, "silent", deepspeed_now("runtime/config.py:474; __init__.py:543"), since=(0, 15, 4))
def sequence_mesh_is_made(split: Split) -> Violations:
    """sequence_parallel_size is written with data_parallel_size, unless the script passes an mpu.
    Prevents: No sequence parallelism, and a batch that is larger than the one written.
    Fix: add data_parallel_size"""
    config = split.config
    passes = config.value("/compile/passes")  # AutoSP makes its own groups
    compiled = isinstance(passes, list) and "autosp" in passes
    if not (config.filled or split.submission.megatron or compiled or config.has(_DATA)):
        message = f"{split.key} without data_parallel_size creates no sequence groups:"
        message += f" only the batch check divides the GPUs by {split.size}"
        yield violation(split.config, ULYSSES, message, 'add "data_parallel_size": GPUs / sequence ranks')


@runs.rule("SP007", ERROR, "init", deepspeed_now("__init__.py:543"), since=(0, 15, 4))
def mesh_fills_the_gpus(run: Run) -> Violations:
    """The product data_parallel_size × sequence_parallel_size is the number of GPUs.
    Prevents: A mesh that is larger than the world, or ranks that are in none.
    Fix: use a product that is the number of GPUs"""
    gpus, data, sequence = world_of(run.submission).gpus, run.config.whole(_DATA), run.config.whole(ULYSSES)
    if gpus and data and sequence and data > 0 and sequence > 0 and data * sequence != gpus:
        message = f"data_parallel_size: {data} × sequence_parallel_size: {sequence} = {data * sequence},"
        hint = f"set sequence_parallel_size to {listed(divisors(gpus)[:8])}"
        hint = hint if gpus % sequence else f"set data_parallel_size to {gpus // sequence}"
        yield violation(run.config, _DATA, f"{message} but there are {gpus} GPUs", hint)


#: The configs of a submission with several pipeline stages.
_piped: Final = runs.where(lambda run: world_of(run.submission).pipeline > 1)


@_piped.rule("PIPE010", WARNING, "silent", deepspeed_now("runtime/engine.py:2662"))
def pipelines_reduce_at_the_end(run: Run) -> Violations:
    """With pipeline stages overlap_comm is off: gradients are reduced when the pipeline's schedule is at its end.
    Prevents: The setting silently has no effect.
    Fix: remove overlap_comm"""
    config, pointer = run.config, f"{ZERO}/overlap_comm"
    if config.stage == 1 and config.switch(pointer):
        message = f"overlap_comm: true has no effect with {world_of(run.submission).pipeline} pipeline stages"
        yield to_remove(config, pointer, message)


@runs.rule("PIPE008", ERROR, "init", deepspeed_now("runtime/pipe/engine.py:135"))
def pipeline_flags_are_flags(run: Run) -> Violations:
    """pipe_partitioned and grad_partitioned are true or false.
    Prevents: an assertion when the pipeline's engine starts
    Fix: write true or false"""
    for key in ("pipe_partitioned", "grad_partitioned"):
        value = run.config.value(f"/pipeline/{key}", True)
        if not isinstance(value, bool):
            message = f"{key}: {shown(value)} is neither true nor false, which a PipelineModule's engine refuses"
            where, hint = run.config.locate(f"/pipeline/{key}"), f"set {key} to true or false"
            severity = None if world_of(run.submission).pipeline > 1 else Severity.WARNING
            yield Violation(where, message, hint, severity=severity)


@configs.rule("PIPE009", NOTE, "silent", deepspeed_now("runtime/config.py:272; runtime/pipe/engine.py:135, :211"))
def pipelines_are_code(config: Config) -> Violations:
    """The pipeline block has only keys that the engine reads: stages and partition are set in the script.
    Prevents: The settings silently have no effect.
    Fix: pass them to PipelineModule"""
    unread = (f"/pipeline/{escape(key)}" for key in config.block("/pipeline") if key not in _READ)
    why = "here: nothing reads it, and stages and partition are arguments of PipelineModule"
    yield from unused(config, unread, why)


@_piped.rule("ELAS005", ERROR, "init", deepspeed("runtime/pipe/engine.py:92"), before=(0, 19, 8))
def elastic_jobs_have_no_stages(run: Run) -> Violations:
    """Elastic training runs without pipeline stages.
    Prevents: `Elasticity is not currently supported with pipeline parallelism`
    Fix: disable elasticity"""
    pointer, stages = "/elasticity/enabled", world_of(run.submission).pipeline
    if run.config.switch(pointer):
        message = f"elasticity is enabled with {stages} pipeline stages, which DeepSpeed refuses"
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

#: Sizes that are refused with AutoEP at stage 3: from which value on, in which release first, and in which no more
#: (deepspeed/runtime/engine.py:1771, :1781 @ 0.19.3; :2176 @ 0.19.7).
_NEVER: Final[Version] = (1000,)
_REFUSED_WITH_AUTOEP: Final[tuple[tuple[str, int, Version, Version], ...]] = (
    (ULYSSES, 2, (), _NEVER),
    (f"{ZERO}/zero_hpz_partition_size", 2, (), _NEVER),
    (f"{ZERO}/zero_quantized_gradients", 1, (), _NEVER),
    (AUTOTP, 2, (0, 19, 3), (0, 19, 8)),
    (f"{ZERO}/mics_shard_size", 1, (0, 19, 3), (0, 19, 7)),
)


def _is_on(config: Config) -> bool:
    return isinstance(config.value(_EXPERTS), dict) and bool(config.switch(f"{_EXPERTS}/enabled"))


_autoep: Final = configs.where(_is_on)
_split: Final = splits(_SIZE, _is_on)


def _native_experts(submission: Submission) -> int:
    """Experts of DeepSpeed's own MoE layers, by the arguments of Megatron-DeepSpeed."""
    if any(arguments.flavour != "megatron-deepspeed" for arguments in submission.megatron):
        return 1
    counts = [arguments.value("--num-experts") for arguments in submission.megatron]
    flat = [n for count in counts for n in (count if isinstance(count, (list, tuple)) else [count])]
    return max((n for n in flat if isinstance(n, int)), default=1)


@_split.rule("MOE006", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:110"), since=(0, 19, 2))
def expert_ranks_divide_the_gpus(split: Split) -> Violations:
    """autoep_size divides the GPUs of a pipeline stage: its groups are cut out of the data and context parallel ranks.
    Prevents: a ValueError when the groups are made
    Fix: set it to a divisor of the GPUs"""
    gpus, stages = split.world.gpus, split.world.pipeline
    if gpus and not gpus % stages and gpus // stages % split.size:
        yield split.violation(f"does not divide the {gpus // stages} GPUs of a stage", divisors(gpus // stages)[:8])


@runs.rule("MOE003", ERROR, "init", deepspeed_now("runtime/zero/stage_1_and_2.py:864"))
def experts_have_contiguous_gradients(run: Run) -> Violations:
    """With experts, ZeRO reduces and scatters gradients, at stage 2 contiguous ones.
    Prevents: `Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE`
    Fix: set them to true"""
    config, stage = run.config, run.config.stage
    if stage not in (1, 2) or not (_is_on(config) or _native_experts(run.submission) > 1):
        return
    keys = ["reduce_scatter"] if config.version >= (0, 19, 8) or stage == 2 else []
    keys += ["contiguous_gradients"] if stage == 2 and not config.offloads("optimizer") else []
    for key in keys:
        if config.switch(f"{ZERO}/{key}") is False:
            message, hint = f"{key}: false is refused for experts at stage {stage}", f"set {key} to true"
            yield violation(config, f"{ZERO}/{key}", message, hint)


@_autoep.rule("MOE004", ERROR, "init", deepspeed_now("runtime/engine.py:2219"), since=(0, 19, 2))
def autoep_at_stage_3_goes_alone(config: Config) -> Violations:
    """AutoEP at stage 3 runs without Ulysses, quantized gradients, second partitions and, before 0.19.8, AutoTP.
    Prevents: `AutoEP with ZeRO Stage 3 does not support ... yet`
    Fix: remove one of the two"""
    for pointer, least, first, last in _REFUSED_WITH_AUTOEP if config.stage == 3 else ():
        size = config.number(pointer)
        if size is not None and size >= least and first <= config.version < last:
            name = pointer.rpartition("/")[2]
            message = f"{said(config, pointer)} is refused with AutoEP at stage 3"
            yield violation(config, pointer, message, f"use stage 1 or 2, or remove {name}")


@_autoep.rule("MOE008", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:214"), since=(0, 19, 8))
def autoep_cuts_no_expert(config: Config) -> Violations:
    """expert_tensor_parallel_size is 1: other sizes are reserved.
    Prevents: a ValueError when the groups are made
    Fix: remove it"""
    pointer = f"{_EXPERTS}/expert_tensor_parallel_size"
    size = config.whole(pointer)
    if size is not None and size != 1:
        message = f"expert_tensor_parallel_size: {size} is refused: only 1 is supported"
        yield violation(config, pointer, message, "set it to 1, or remove it")


@_autoep.rule("MOE009", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:180"), since=(0, 19, 8))
def autoep_choices_are_known(config: Config) -> Violations:
    """expert_parallel's choices are ones that AutoEP has.
    Prevents: a ValueError when the engine starts
    Fix: use one of the choices"""
    for key, choices in _CHOICES.items():
        value = config.value(f"{_EXPERTS}/{key}", choices[0])
        if value not in choices:
            message, hint = f"{key}: {shown(value)} is not one of AutoEP's choices", f"use {listed(choices)}"
            yield violation(config, f"{_EXPERTS}/{key}", message, hint)


@_autoep.rule("MOE010", ERROR, "init", deepspeed_now("module_inject/auto_ep_config.py:232"), since=(0, 19, 8))
def deepep_knows_its_tokens(config: Config) -> Violations:
    """comm_backend deepep is used with comm_max_tokens_per_rank, the most tokens that a rank routes.
    Prevents: `comm_max_tokens_per_rank must be a positive integer when comm_backend='deepep'`
    Fix: add comm_max_tokens_per_rank"""
    if config.value(_BACKEND) == "deepep" and config.value(f"{_EXPERTS}/comm_max_tokens_per_rank", 0) == 0:
        message = 'comm_backend: "deepep" requires comm_max_tokens_per_rank'
        hint = "set comm_max_tokens_per_rank to micro batch × longest padded sequence"
        yield violation(config, _BACKEND, message, hint)


@_autoep.rule("MOE011", ERROR, "init", deepspeed_now("module_inject/auto_ep_folding.py:240, :248"), since=(0, 19, 8))
def autoep_folds_over_experts(config: Config) -> Violations:
    """AutoEP with AutoTP has an autoep_size above 1, and no offload.
    Prevents: `AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1`
    Fix: use one of the two"""
    tensor, size = config.whole(AUTOTP) or 1, config.whole(_SIZE) if config.has(_SIZE) else 1
    if tensor > 1 and size == 1:
        message = f"autoep_size: 1 with autotp_size: {tensor} is refused: gradients would count {tensor} times"
        yield violation(config, _EXPERTS, message, "set autoep_size above 1, or autotp_size to 1")
    if tensor > 1 and (config.offloads("optimizer") or (config.offloads("param") and config.stage == 3)):
        message = f"AutoEP with autotp_size: {tensor} is refused with offload"
        yield violation(config, _EXPERTS, message, "remove the offload, or set autotp_size to 1")


@configs.rule("MOE012", WARNING, "silent", deepspeed_now("module_inject/auto_ep_config.py:46"), since=(0, 19, 2))
def autoep_is_switched_on(config: Config) -> Violations:
    """expert_parallel is enabled where it has settings.
    Prevents: Experts are silently not distributed.
    Fix: set enabled to true"""
    if config.block(_EXPERTS) and not config.has(f"{_EXPERTS}/enabled"):
        message = "expert_parallel is not enabled, so its settings have no effect"
        yield Violation(config.locate_key(_EXPERTS), message, 'add "enabled": true')
