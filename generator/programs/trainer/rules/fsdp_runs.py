"""Rules on what FSDP2 runs with: its processes, its attention, its experts, its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....numerals import read_whole
from ....rules.violations import accelerate, torch, transformers
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....submission.world import world_of
from ....text.wording import whole_number
from ..fsdp_config import Fsdp
from .accelerate_parallelism import Sizes, all_sizes
from .fsdp import fsdp2, sharded

_TRAINER: Final = transformers("src/transformers/trainer.py:477")
_STORAGE: Final = "bnb_4bit_quant_storage"
_COPIES: Final = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"


class Run(NamedTuple):
    """A run with FSDP2, and its processes."""

    fsdp: Fsdp
    processes: int | None


@subject("accelerate config", "training arguments", "FSDP config")
def sized(submission: Submission) -> Iterator[Run]:
    """FSDP2's settings with the processes of the submission."""
    for fsdp in fsdp2(submission):
        yield Run(fsdp, world_of(submission).gpus)


@all_sizes.rule("FSDP042", ERROR, "init", accelerate("state.py:999"))
def gathered_sequences_are_sharded(sizes: Sizes) -> Violations:
    """Context parallelism (cp_size) shards the model too: it needs FSDP2.
    Prevents: ValueError: `cp_size > 1` specified in the `parallelism_config`, but no `fsdp_plugin`
    was provided
    Fix: set distributed_type: FSDP, and fsdp_version: 2
    """
    size = sizes.context
    if size > 1 and not sizes.fsdp and not sizes.deepspeed:
        message = f"cp_size {size} without FSDP"
        hint = "set distributed_type: FSDP, and fsdp_version: 2 in fsdp_config"
        yield Violation(sizes.where, message, hint)


@fsdp2.rule("FSDP043", ERROR, "training", transformers("src/transformers/trainer.py:2413"))
def gathered_attention_is_pytorchs(run: Fsdp) -> Violations:
    """With cp_size, attention is PyTorch's (sdpa), and full in every layer.
    Prevents: `Context parallelism is supported only with SDPA attention`, at the first batch
    Fix: use attn_implementation sdpa, and a model without a sliding window
    """
    setting = run.mesh.get("cp_size")
    size = whole_number(setting.value) if setting is not None else None
    if setting is None or size is None or size < 2:
        return
    arguments, name = run.arguments, "attn_implementation"
    kind = arguments.value(name) if arguments is not None else None
    if arguments is not None and isinstance(kind, str) and kind != "sdpa":
        message = f"{name} {kind} with cp_size {size}, which needs sdpa"
        yield Violation(arguments.locate(name), message, f"use {name} sdpa")
    if run.model is not None and run.model.sliding_window is not None:
        message = f"cp_size {size} with the sliding window of {run.model.name}"
        yield Violation(setting.where, message, "use cp_size 1")


@sharded.where(lambda run: not run.by_accelerate).rule("FSDP044", ERROR, "init", _TRAINER)
def a_launcher_starts_the_ranks(run: Fsdp) -> Violations:
    """The Trainer's --fsdp needs torchrun or another launcher, which starts a process per GPU.
    Prevents: ValueError: Using fsdp only works in distributed training.
    Fix: start the program by torchrun
    """
    arguments = run.arguments
    launch = arguments.launch if arguments is not None else None
    if arguments is None or launch is None or arguments.is_on_front_end or arguments.assumed:
        return
    ranks = ("LOCAL_RANK", "RANK", "WORLD_SIZE")
    # A job of a service may start the ranks itself, as AzureML's distribution does.
    if launch.script.text.path.endswith((".yml", ".yaml", ".json")):
        return
    by_python = all(call.program.startswith("python") for call in launch.calls)
    if by_python and not any(name in launch.environment for name in ranks):
        message = "fsdp in one process: python alone starts it"
        hint = "start it by torchrun, with --nproc-per-node"
        yield Violation(arguments.locate("fsdp"), message, hint)


def _copies(fsdp: Fsdp) -> int | None:
    """How many copies of the shards there are, by the mesh or accelerate's variable.

    None where that can't be known.
    """
    launch = fsdp.arguments.launch if fsdp.arguments is not None else None
    variable = launch.environment.get(_COPIES) if launch is not None else None
    if variable is not None:
        return None if variable.value is None else read_whole(variable.value)
    copies = fsdp.mesh.get("dp_replicate_size")
    return whole_number(copies.value) if copies is not None else 1


@sized.rule("FSDP045", WARNING, "silent", torch("distributed/fsdp/_fully_shard/_fsdp_param.py:298"))
def shards_are_no_more_than_experts(run: Run) -> Violations:
    """The ranks that share the states are no more than the experts of a layer.
    Prevents: No error: a layer's experts are one tensor, cut by experts. Ranks beyond their number
    hold none, while each gather and each reduction moves as much as if they did.
    Fix: set dp_replicate_size and dp_shard_size
    """
    fsdp, processes = run
    model, copies = fsdp.model, _copies(fsdp)
    if model is None or not model.experts or not processes or not copies:
        return
    ranks = processes // copies
    if ranks > model.experts:
        message = (
            f"{ranks} ranks share the {model.experts} experts of a layer of {model.name}, which "
            f"are whole: {ranks - model.experts} hold none"
        )
        hint = "set dp_replicate_size, so that fewer ranks share them"
        yield Violation(fsdp.where, message, hint)


@fsdp2.rule("FSDP046", WARNING, "silent", accelerate("utils/fsdp_utils.py:789-811"))
def quantized_weights_are_sharded(run: Fsdp) -> Violations:
    """A base in 4 bits is stored in a floating type, which FSDP2 can shard.
    Prevents: No error: integers stay whole on every GPU, half a byte a parameter.
    Fix: set bnb_4bit_quant_storage to bfloat16
    """
    arguments = run.arguments
    if arguments is None or str(arguments.value("load_in_4bit")).lower() != "true":
        return
    stored = arguments.value(_STORAGE, "uint8")
    if stored == "uint8":
        # A program may set it by itself.
        severity = None if arguments.has(_STORAGE) else Severity.NOTE
        message = f"load_in_4bit with {_STORAGE} uint8: every GPU holds the whole base"
        where = arguments.locate(_STORAGE if arguments.has(_STORAGE) else "load_in_4bit")
        yield Violation(where, message, f"set {_STORAGE} to bfloat16", severity=severity)
