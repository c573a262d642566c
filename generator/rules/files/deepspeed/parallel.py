"""AutoTP in DeepSpeed configs: tensor_parallel."""

from __future__ import annotations

from typing import Final

from ....documents.deepspeed_config import Config
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ...numbers import divisors
from ...sources import deepspeed, deepspeed_now, derived
from .splits import AUTOTP, Split, splits
from .subjects import configs
from .values import shown

_INNER: Final = "/tensor_parallel/tp/tp_size"
_BATCH: Final = "/train_batch_size"
_MODELS: Final = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")

_autotp: Final = splits(AUTOTP)


@_autotp.rule("TP001", ERROR, "init", deepspeed("utils/groups.py:100"))
def tensor_ranks_divide_the_gpus(split: Split) -> Violations:
    """autotp_size divides the GPUs.

    Prevents: `N is not divisible by M` when the groups are made
    Fix: set it to a divisor of the GPUs
    """
    gpus = split.world.gpus
    if gpus and gpus % split.size:
        yield split.violation(f"does not divide {gpus} GPUs", divisors(gpus)[:8])


@_autotp.rule("TP003", ERROR, "init", deepspeed_now("runtime/engine.py:1020"))
def tensor_sizes_agree(split: Split) -> Violations:
    """tensor_parallel.tp.tp_size is 1 or autotp_size.

    Prevents: `tensor_parallel.tp.tp_size does not match tensor_parallel.autotp_size`
    Fix: write only autotp_size
    """
    inner = split.config.whole(_INNER)
    if inner is not None and inner not in (1, split.size):
        message, hint = f"tp_size: {inner} does not match {split.key}", f"set tp_size to {split.size}, or remove it"
        yield split.other(_INNER, message, hint)


@configs.rule("TP007", ERROR, "silent", deepspeed_now("runtime/engine.py:592"))
def autotp_is_switched_on(config: Config) -> Violations:
    """tensor_parallel sets autotp_size: where it is not above 1, the rest of the block has no effect.

    Prevents: Nothing is split over tensor ranks, and memory runs out.
    Fix: set autotp_size
    """
    inner = config.whole(_INNER)
    size = config.whole(AUTOTP) if config.has(AUTOTP) else 0
    if inner is not None and inner > 1 and size in (0, 1):
        message = f"tp_size: {inner} has no effect: autotp_size is {size}{'' if config.has(AUTOTP) else ' by default'}"
        yield Violation(where=config.locate(_INNER), message=message, hint=f"set autotp_size to {inner}")


@_autotp.rule("TP004", WARNING, "silent", deepspeed("runtime/engine.py:761"))
def tensor_ranks_have_kv_heads(split: Split) -> Violations:
    """autotp_size is at most the model's key-value heads: AutoTP replicates them over more ranks.

    Prevents: more memory than planned
    Fix: use at most the key-value heads
    """
    model = split.submission.model
    if model and split.size > model.kv_heads:
        problem = f"is more than {model.name}'s {model.kv_heads} key-value heads: they are replicated"
        yield split.violation(problem, divisors(model.kv_heads))


@_autotp.rule("NODE002", WARNING, "silent", derived("tensor parallelism all-reduces 4 times in every layer"))
def tensor_ranks_share_a_node(split: Split) -> Violations:
    """Tensor parallel ranks share the fast fabric of a node or rack: four collectives per layer wait for it.

    Prevents: steps that wait for the network
    Fix: use at most the GPUs of a node
    """
    per_node, message = split.world.gpus_per_node, f"{split.key} spans nodes of {split.world.gpus_per_node} GPUs"
    if per_node and split.size > per_node:
        yield split.other(AUTOTP, message, f"set autotp_size to {per_node} or less")


@_autotp.rule("TP006", NOTE, "silent", deepspeed_now("runtime/config.py:463; __init__.py:554"), since=(0, 16, 4))
def tensor_ranks_read_one_batch(split: Split) -> Violations:
    """train_batch_size counts each tensor rank: with AutoTP and no mpu, DeepSpeed takes them for replicas.

    Prevents: a batch smaller than the one written, by the tensor parallel size
    Fix: multiply by the tensor parallel size, or pass an mpu
    """
    size, gpus, config, job = split.size, split.world.gpus, split.config, split.submission.job
    if split.submission.megatron:
        return
    if config.filled and config.value(_BATCH) == "auto":
        message = f'train_batch_size: "auto" is filled in for all {gpus or "the"} GPUs, but {size} tensor ranks'
        hint = f'write numbers in place of "auto", with {size} times fewer replicas'
        yield split.other(_BATCH, f"{message} read the same samples", hint)
    batch = config.whole(_BATCH)
    meant = job is not None and batch == size * job.training.global_batch
    if batch and gpus and not gpus % size and not batch % size and not meant:
        message = f"train_batch_size: {batch} counts each of {size} tensor ranks, which read the same samples:"
        hint = f"write {size} × the intended batch, unless the script passes an mpu"
        yield split.other(_BATCH, f"{message} a step sees {batch // size} on {gpus} GPUs", hint)


@configs.rule("TP008", WARNING, "silent", deepspeed_now("module_inject/autotp_config.py:558"), since=(0, 18, 9))
def tensor_presets_are_known(config: Config) -> Violations:
    """tensor_parallel.preset_model is one of AutoTP's models.

    Prevents: The preset is silently not applied.
    Fix: name a known model
    """
    pointer = "/tensor_parallel/preset_model"
    name = config.text(pointer)
    if name is not None and name.lower() not in _MODELS:
        message = f"unknown preset_model {shown(name)} is silently ignored: AutoTP guesses the layers itself"
        yield Violation(where=config.locate(pointer), message=message, hint=f"use one of {', '.join(_MODELS)}")
