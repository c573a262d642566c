"""Pipeline stages, AutoTP and Ulysses in DeepSpeed configs."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.submission import FILLERS, Submission
from ....documents.world import world_of
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.source import escape
from ...numbers import divisors, listed
from ...rule import submissions
from ...sources import deepspeed, deepspeed_now, derived
from .subjects import configs
from .values import removed, shown, unused

ZERO: Final = "/zero_optimization"
AUTOTP: Final = "/tensor_parallel/autotp_size"
ULYSSES: Final = "/sequence_parallel_size"

#: What the pipeline engine reads of its block; `stages`, `partition` and `seed_layers` have defaults and no reader.
PIPELINE_KEYS: Final = ("activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned", "use_reentrant")
AUTOTP_MODELS: Final = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")


@submissions.rule("PIPE001", ERROR, "init", deepspeed("runtime/pipe/engine.py:76"), reads=("DeepSpeed config",))
def pipelines_stop_at_stage_1(submission: Submission) -> Violations:
    """Under a pipeline ZeRO stops at stage 1: gradients accumulate over micro-batches in place.

    Prevents: `ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism`
    Fix: stage 1
    """
    stages = world_of(submission).pipeline
    for config in configs(submission):
        stage = config.stage
        if stages > 1 and stage in (2, 3):
            message = f"stage: {stage} with {stages} pipeline stages is refused: at most 1"
            yield Violation(
                where=config.locate(f"{ZERO}/stage"), message=message, hint="stage 1, or one pipeline stage"
            )


@submissions.rule("PIPE010", WARNING, "silent", deepspeed_now("runtime/engine.py:2662"), reads=("DeepSpeed config",))
def pipelines_reduce_at_the_end(submission: Submission) -> Violations:
    """A pipeline reduces gradients when its schedule says, so overlap_comm is off.

    Prevents: a setting that looks effective and is not
    Fix: overlap_comm: false
    """
    for config in configs(submission):
        pointer = f"{ZERO}/overlap_comm"
        if world_of(submission).pipeline > 1 and config.stage == 1 and config.switch(pointer):
            message = f"overlap_comm: true is switched off under {world_of(submission).pipeline} pipeline stages"
            edits = removed(config, pointer)
            yield Violation(where=config.locate(pointer), message=message, hint="remove overlap_comm", edits=edits)


@submissions.rule("PIPE008", ERROR, "init", deepspeed_now("runtime/pipe/engine.py:135"), reads=("DeepSpeed config",))
def pipeline_flags_are_flags(submission: Submission) -> Violations:
    """pipe_partitioned and grad_partitioned are true or false.

    Prevents: an assertion when the pipeline's engine starts
    Fix: true or false
    """
    for config in configs(submission):
        for key in ("pipe_partitioned", "grad_partitioned"):
            value = config.value(f"/pipeline/{key}", True)
            if not isinstance(value, bool):
                known = world_of(submission).pipeline > 1
                message = f"{key}: {shown(value)} is neither true nor false, which a PipelineModule's engine refuses"
                severity = None if known else Severity.WARNING
                where = config.locate(f"/pipeline/{key}")
                yield Violation(where=where, message=message, hint=f"{key}: true", severity=severity)


@configs.rule(
    "PIPE009",
    WARNING,
    "silent",
    deepspeed_now("runtime/config.py:272; runtime/pipe/engine.py:135; runtime/pipe/engine.py:211"),
)
def pipelines_are_code(config: Config) -> Violations:
    """The pipeline block has only keys that the engine reads: stages and partition are the script's.

    Prevents: settings that look effective and aren't
    Fix: arguments of PipelineModule
    """
    unread = (f"/pipeline/{escape(key)}" for key in config.block("/pipeline") if key not in PIPELINE_KEYS)
    why = "here: nothing reads it, and stages and partition are arguments of PipelineModule"
    yield from unused(config, unread, why)


@submissions.rule("TP001", ERROR, "init", deepspeed("utils/groups.py:100"), reads=("DeepSpeed config",))
def tensor_ranks_divide_the_gpus(submission: Submission) -> Violations:
    """The GPUs are a multiple of autotp_size.

    Prevents: `N is not divisible by M` when the groups are made
    Fix: a divisor of the GPUs
    """
    gpus = world_of(submission).gpus
    for config in configs(submission):
        size = config.whole(AUTOTP)
        if gpus and size and size > 1 and gpus % size:
            message = f"autotp_size: {size} does not divide {gpus} GPUs"
            hint = f"autotp_size: {listed(divisors(gpus)[:8])}"
            yield Violation(where=config.locate(AUTOTP), message=message, hint=hint)


@configs.rule("TP003", ERROR, "init", deepspeed_now("runtime/engine.py:1020"))
def tensor_sizes_agree(config: Config) -> Violations:
    """tensor_parallel.tp.tp_size is 1 or autotp_size.

    Prevents: `tensor_parallel.tp.tp_size does not match tensor_parallel.autotp_size`
    Fix: one size
    """
    size, inner = config.whole(AUTOTP), config.whole("/tensor_parallel/tp/tp_size")
    if size and size > 1 and inner is not None and inner not in (1, size):
        message = f"tp_size: {inner} does not match autotp_size: {size}"
        where = config.locate("/tensor_parallel/tp/tp_size")
        yield Violation(where=where, message=message, hint=f"tp_size: {size}, or leave it out")


@configs.rule("TP007", ERROR, "silent", deepspeed_now("runtime/engine.py:592"))
def autotp_is_switched_on(config: Config) -> Violations:
    """tensor_parallel works by autotp_size: without one above 1, the rest of the block has no effect.

    Prevents: no tensor parallelism at all: out of memory where the plan said it fits
    Fix: autotp_size
    """
    inner = config.whole("/tensor_parallel/tp/tp_size")
    size = config.whole(AUTOTP) if config.has(AUTOTP) else 0
    if inner is not None and inner > 1 and size in (0, 1):
        message = f"tp_size: {inner} has no effect: autotp_size is {size}{'' if config.has(AUTOTP) else ' by default'}"
        where = config.locate("/tensor_parallel/tp/tp_size")
        yield Violation(where=where, message=message, hint=f'"autotp_size": {inner}')


@submissions.rule("TP004", WARNING, "silent", deepspeed("runtime/engine.py:761"), reads=("DeepSpeed config",))
def tensor_ranks_have_kv_heads(submission: Submission) -> Violations:
    """AutoTP replicates key-value heads when there are more ranks than heads, which costs memory.

    Prevents: more memory than planned
    Fix: at most the key-value heads
    """
    model = submission.model
    for config in configs(submission) if model else ():
        size = config.whole(AUTOTP)
        if model and size and size > model.kv_heads:
            message = (
                f"autotp_size: {size} is more than {model.name}'s {model.kv_heads} key-value heads: they are replicated"
            )
            hint = f"autotp_size: {listed(divisors(model.kv_heads))}"
            yield Violation(where=config.locate(AUTOTP), message=message, hint=hint)


@submissions.rule(
    "NODE002",
    WARNING,
    "silent",
    derived("tensor parallelism all-reduces twice forward and twice backward in every layer"),
    reads=("DeepSpeed config",),
)
def tensor_ranks_share_a_node(submission: Submission) -> Violations:
    """Tensor parallel ranks share the fast fabric of a node or rack: four collectives a layer wait for it.

    Prevents: steps that wait for the network
    Fix: at most the GPUs of a node
    """
    per_node = world_of(submission).gpus_per_node
    for config in configs(submission):
        size = config.whole(AUTOTP)
        if per_node and size and size > per_node:
            message = f"autotp_size: {size} spans nodes of {per_node} GPUs"
            yield Violation(where=config.locate(AUTOTP), message=message, hint=f"autotp_size: {per_node} or less")


@submissions.rule(
    "TP006",
    NOTE,
    "silent",
    deepspeed_now("runtime/config.py:463; __init__.py:554"),
    since=(0, 16, 4),
    reads=("DeepSpeed config",),
)
def tensor_ranks_read_one_batch(submission: Submission) -> Violations:
    """With AutoTP and no mpu, DeepSpeed counts tensor ranks as replicas in train_batch_size.

    Prevents: a batch smaller than the one written, by the tensor parallel size
    Fix: multiply, or pass an mpu
    """
    gpus = world_of(submission).gpus
    for config in configs(submission) if not submission.megatron else ():
        size, batch = config.whole(AUTOTP), config.whole("/train_batch_size")
        if size and size > 1 and submission.consumer in FILLERS and config.value("/train_batch_size") == "auto":
            message = f'train_batch_size: "auto" is filled in for all {gpus or "the"} GPUs, but {size} tensor ranks'
            message += " read the same samples"
            hint = f'numbers in place of "auto", with {size} times fewer replicas'
            yield Violation(where=config.locate("/train_batch_size"), message=message, hint=hint)
        meant = submission.job is not None and batch == (size or 1) * submission.job.training.global_batch
        if size and size > 1 and batch and gpus and not gpus % size and not batch % size and not meant:
            message = f"train_batch_size: {batch} counts each of {size} tensor ranks, which read the same samples:"
            message += f" a step sees {batch // size} on {gpus} GPUs"
            hint = f"{size} × the batch that is meant, unless the script passes an mpu"
            yield Violation(where=config.locate("/train_batch_size"), message=message, hint=hint)


@configs.rule("TP008", WARNING, "silent", deepspeed_now("module_inject/autotp_config.py:558"), since=(0, 18, 9))
def tensor_presets_are_known(config: Config) -> Violations:
    """tensor_parallel.preset_model is one of AutoTP's models, or silently nothing.

    Prevents: a preset that silently is none
    Fix: a known model
    """
    pointer = "/tensor_parallel/preset_model"
    name = config.read(pointer)
    if isinstance(name, str) and name.lower() not in AUTOTP_MODELS:
        message = f"preset_model: {shown(name)} is silently none: AutoTP guesses the layers itself"
        yield Violation(where=config.locate(pointer), message=message, hint=f"one of {', '.join(AUTOTP_MODELS)}")


@submissions.rule(
    "ELAS005", ERROR, "init", deepspeed("runtime/pipe/engine.py:92"), before=(0, 19, 8), reads=("DeepSpeed config",)
)
def elastic_jobs_have_no_stages(submission: Submission) -> Violations:
    """Elastic training has no pipeline.

    Prevents: `Elasticity is not currently supported with pipeline parallelism`
    Fix: no elasticity
    """
    stages = world_of(submission).pipeline
    for config in configs(submission) if stages > 1 else ():
        if config.switch("/elasticity/enabled"):
            message = f"elasticity is enabled with {stages} pipeline stages, which DeepSpeed refuses"
            yield Violation(where=config.locate("/elasticity/enabled"), message=message, hint="enabled: false")
