"""FSDP2 in the Trainer's files: `fsdp_config.json`, arguments, variables, notes.

Every process is started by torchrun, so that the Trainer's arguments say what accelerate's YAML
would. They have no word for copies of the shards and for context parallelism: accelerate reads
these from variables, as it reads what has to be known before the Trainer is made.

**Source**: transformers 5.23, training_args.py, `_process_fsdp_args`; accelerate 1.15,
utils/dataclasses.py, `FullyShardedDataParallelPlugin` and `GradientAccumulationPlugin`,
parallelism_config.py, state.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from ...estimate.adapters import has_4bit_base
from ...estimate.layout import Layout, Offload, Recompute
from ...estimate.states import has_no_masters
from ...job.hf_keys import layer_classes
from ...job.records import Job
from ...search.plan import Plan
from ..program import ConfigPath, RenderedFile

FILE_NAME: Final = "fsdp_config.json"
_UNITS: Final = "transformer_layer_cls_to_wrap"


def config(job: Job, layout: Layout) -> dict[str, bool | int | str | list[str]]:
    """The keys of `fsdp_config` that a plan decides."""
    layers = layer_classes(job.model.family)
    units: dict[str, list[str]] = {}
    if layers is not None and not layers.named:  # else the model's own `_no_split_modules` count
        units[_UNITS] = [*layers.names]
    return {
        "version": 2,
        "reshard_after_forward": layout.zero_stage >= 3,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        **units,
        "state_dict_type": "SHARDED_STATE_DICT",
        "cpu_ram_efficient_loading": not has_4bit_base(job),  # every process loads such a model
        "activation_checkpointing": layout.recompute == Recompute.FULL,
        "cpu_offload": layout.offload == Offload.OPTIMIZER_AND_PARAMETERS,
    }


def rendered(job: Job, layout: Layout) -> RenderedFile:
    """`fsdp_config.json`, which the Trainer's arguments name."""
    text = json.dumps(config(job, layout), indent=2)
    return RenderedFile(path=FILE_NAME, text=f"{text}\n")


def accelerator_config(plan: Plan) -> str | None:
    """The argument by which every micro-batch reduces gradients; None where only the last does."""
    layout = plan.layout
    if not layout.sync_each_batch or layout.gradient_accumulation == 1:
        return None
    return json.dumps({"gradient_accumulation_kwargs": {"sync_each_batch": True}})


def config_path(_: Plan) -> ConfigPath:
    """The value of the argument that names the file."""
    return ConfigPath(FILE_NAME)


def environment(job: Job, layout: Layout) -> Mapping[str, str]:
    """Variables that are read before the Trainer is made, and the sizes of the mesh.

    **Source**: transformers 5.23, distributed/fsdp.py, `is_fsdp_enabled`, by which one process of a
    node loads the weights; accelerate 1.15, state.py, `PartialState`, which adds gloo for states on
    the host.
    """
    variables = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
    if not has_4bit_base(job):
        variables["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
    if layout.offload == Offload.OPTIMIZER_AND_PARAMETERS:
        variables["FSDP_OFFLOAD_PARAMS"] = "true"

    if layout.zero_copies > 1 or layout.context > 1:
        variables["ACCELERATE_USE_PARALLELISM_CONFIG"] = "true"
        sizes = {
            "DP_SHARD": layout.data // layout.zero_copies,
            "DP_REPLICATE": layout.zero_copies,
            "CP": layout.context,
        }
        variables |= {f"PARALLELISM_CONFIG_{name}_SIZE": str(size) for name, size in sizes.items()}
    return variables


def notes(job: Job, layout: Layout) -> Iterator[str]:
    """Notes on what a reader would question, or has to do."""
    if job.output.checkpoints is not None:
        yield (
            "Checkpoints are sharded: any number of processes resumes from them. `accelerate "
            "merge-weights CHECKPOINT/pytorch_model_fsdp_0 FOLDER` makes a model of one."
        )
    if layout.gradient_accumulation > 1 and not layout.sync_each_batch:
        yield (
            "Gradients are summed whole on each GPU until the last micro-batch of a step, and only "
            "then reduced; sync_each_batch: true would need less memory."
        )
    if has_no_masters(job):
        yield (
            "Weights, gradients and the optimizer's moments are bf16, and no weight is fp32: the "
            "script has to load or make the model with dtype=torch.bfloat16. run_clm.py's --dtype "
            "does so for --model_name_or_path alone. Without --bf16 nothing is cast."
        )
    if layout.context > 1:
        yield (
            "Context parallelism drops attention masks: each batch has to be without padding, and "
            f"its length a multiple of {2 * layout.context}."
        )
