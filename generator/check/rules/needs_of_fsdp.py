"""The memory needs of the Trainer's runs with FSDP.

Files of such a run say little of the model and nothing of its layers: a job spec or a plan has to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ...facts.facts import Facts, knows
from ...job.records import Job
from ...numerals import read_whole
from ...programs.trainer.fsdp_config import Fsdp
from ...programs.trainer.training_arguments import TrainingArguments
from ...submission.submission import Submission
from ...submission.world import cluster_of, world_of
from ...text.wording import whole_number
from .need import Need, Unjudged, need_of, other_than_planned, planned_of

#: How the variables begin that hold the sizes of accelerate's mesh.
_MESH_PREFIX: Final = "PARALLELISM_CONFIG_"
#: Keys of the layout, by the sizes of the mesh.
_MESH_SIZES: Final = {"dp_replicate_size": "zero_copies", "cp_size": "context"}


def of_fsdp(submission: Submission) -> Iterator[Need | Unjudged]:
    """The needs of the Trainer's runs with FSDP, where a job says what their files leave open."""
    planned = planned_of(submission)
    if planned is None:
        yield from _without_job(submission)
        return
    if planned.engine.sharding != "units":
        return
    from ...programs.trainer.rules.fsdp import sharded  # saves start-up time

    for fsdp in sharded(submission):
        job_or_reason = _run_of_fsdp(fsdp, submission, planned)
        if isinstance(job_or_reason, str):
            yield Unjudged(where=fsdp.where, reason=job_or_reason)
        else:
            job, device = job_or_reason, "cpu" if fsdp.offloads else None
            yield from need_of(submission, Facts(job=job), job, device, of_spec=True, pinned=True)


def _without_job(submission: Submission) -> Iterator[Unjudged]:
    """The runs with FSDP, where a model and machines are given and a job is missing."""
    context = submission.context
    if context.model is None or submission.cluster is None:
        return
    from ...programs.trainer.rules.fsdp import sharded  # saves start-up time

    for fsdp in sharded(submission):
        if fsdp.arguments is not None:
            reason = (
                "a job spec says what files with FSDP leave open: give --job "
                "(`dsgen init --from` the folder writes one)"
            )
            yield Unjudged(where=fsdp.where, reason=reason)


def _run_of_fsdp(fsdp: Fsdp, submission: Submission, planned: Job) -> Job | str:
    """The job with the layout of FSDP's settings and the arguments, or why it isn't known."""
    world, arguments = world_of(submission), fsdp.arguments
    batch = arguments.batch if arguments is not None else None
    replicas, stage = world.replicas, fsdp.zero_stage
    if not knows(planned, "layers"):
        return "the model is not known"
    if arguments is None:
        return "the program's options aren't recognized as the Trainer's"
    if batch is None or batch.micro < 1:
        return "the batch of a GPU is not known"
    if not replicas or cluster_of(submission) is None:
        return "the number of GPUs is not known"
    is_config_missing = arguments.has("fsdp_config") and not fsdp.values
    if stage is None or fsdp.version is None or is_config_missing or fsdp.switch("xla", False):
        return "how FSDP shards is not known"
    difference = other_than_planned(submission)
    if difference:
        return difference
    mesh = _mesh_of(fsdp, submission)
    if mesh is None:
        return "the sizes of the mesh are not known"

    copies: dict[str, Any] = {}
    if fsdp.running.startswith("HYBRID"):  # it shards within a node, and each node has a copy
        copies["zero_copies"] = world.nodes
    pins = replace(
        planned.pins,
        data=replicas,
        tensor=1,
        pipeline=1,
        zero_stage=stage,
        micro_batch=batch.micro,
        gradient_accumulation=max(batch.sequences // batch.micro, 1),
        recompute="full" if _checkpoints(fsdp, arguments) else "none",
        offload="optimizer+parameters" if fsdp.offloads else "none",
        sync_each_batch=_syncs_each_batch(arguments) or planned.pins.sync_each_batch,
        **(copies | mesh),
    )
    training = replace(planned.training, global_batch=batch.sequences * replicas)
    places = {
        "/layout/micro_batch": arguments.locate("per_device_train_batch_size"),
        "/layout/zero_stage": fsdp.where,
        "/layout/offload": fsdp.locate("cpu_offload"),
    }
    origin = replace(planned.origin, path=arguments.path, locations=places, start=fsdp.where)
    return replace(planned, pins=pins, training=training, origin=origin)


def _checkpoints(fsdp: Fsdp, arguments: TrainingArguments) -> bool:
    """Whether activations are recomputed: by FSDP's setting, else by the Trainer's."""
    by_fsdp = fsdp.switch("activation_checkpointing", False)
    return bool(by_fsdp) or arguments.value("gradient_checkpointing", by_fsdp) is True


def _mesh_of(fsdp: Fsdp, submission: Submission) -> dict[str, int] | None:
    """The keys of the layout that the sizes of accelerate's mesh give.

    None where one of these isn't known.
    """
    mesh: dict[str, object] = {name: setting.value for name, setting in fsdp.mesh.items()}
    for script in submission.shell_texts:
        for variable in script.shell.assignments:
            if variable.name.startswith(_MESH_PREFIX):
                name = variable.name.removeprefix(_MESH_PREFIX).lower()
                mesh[name] = read_whole(variable.value)

    sizes = dict[str, int]()
    for name, key in _MESH_SIZES.items():
        if name in mesh:
            size = whole_number(mesh[name])
            if size is None or size < 1:
                return None
            sizes[key] = size
    return sizes


def _syncs_each_batch(arguments: TrainingArguments) -> bool:
    """Whether `accelerator_config` has gradients reduced in each micro-batch."""
    value = arguments.value("accelerator_config")
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return re.search(r'"sync_each_batch"\s*:\s*true', text) is not None
