"""The memory needs of runs with a DeepSpeed config, which says little of activations.

What the config leaves open is taken from the job spec, or from the plan beside the files. Without
either, only the least that the model can need is estimated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ...facts.facts import completed, knows
from ...job.records import Job, Pins, Training
from ...programs.deepspeed.config import Config
from ...programs.deepspeed.facts import ConfigFacts
from ...programs.trainer.training_arguments import TrainingArguments
from ...submission.submission import Submission
from ...submission.world import World, world_of
from .need import Need, Unjudged, is_pinned, need_of, other_than_planned, planned_of

#: Words of arguments by which a run trains less than all parameters, or keeps less for each than
#: Adam; with each, whether a job's training says the same, so that the estimate counts it.
_TRAINS_LESS: Final[tuple[tuple[re.Pattern[str], Callable[[Training], bool]], ...]] = (
    (re.compile(r"lora|peft|adapter", re.I), lambda training: training.lora is not None),
    (
        re.compile(r"4bit", re.I),
        lambda training: training.lora is not None and training.lora.base == "4bit",
    ),
    (re.compile(r"8bit", re.I), lambda training: training.optimizer == "adamw-8bit"),
    (re.compile(r"freeze|frozen|galore|adafactor|\blion\b|inference", re.I), lambda _: False),
)
#: Facts without which a run can't be estimated, as a reason calls them.
_NEEDED: Final = {
    "layers": "the model",
    "link_domain": "the cluster",
    "gpus": "the number of GPUs",
}
#: Facts of the training that a config doesn't hold: taken from the job spec or the plan.
_TRAINING_FACTS: Final = (
    "optimizer",
    "attention",
    "kernels",
    "cross_entropy",
    "moment_dtype",
    "master_dtype",
    "fp8_parameters",
    "lora",
)
#: Those that are assumed of a run without either.
_USUAL_TRAINING: Final = {"optimizer": "adamw", "attention": "flash"}
_MOST_BATCH: Final = 10_000  #: sequences of a pass
_LEAST_ONLY: Final = (
    "without layout.recompute and the micro batch, only the least that it can need is"
)
_MICS: Final = "/zero_optimization/mics_shard_size"


def of_config(facts: ConfigFacts, submission: Submission) -> Iterator[Need | Unjudged]:
    """The need of a run with a DeepSpeed config, or why it isn't estimated."""
    config, where = facts.config, facts.config.locate("")
    reason = _why_unjudged(facts, submission)
    if reason:
        yield Unjudged(where=where, reason=reason)
        return

    planned_run = _run_of_spec(facts, submission)
    estimated_run = planned_run or _least_run(facts, submission)
    if estimated_run is None:
        yield Unjudged(where=where, reason="how the GPUs are divided is not known")
        return
    if planned_run is None and planned_of(submission) is not None:
        yield Unjudged(where=where, reason=_LEAST_ONLY)
    yield from need_of(
        submission,
        facts,
        estimated_run,
        config.offload("optimizer"),
        of_spec=planned_run is not None,
        pinned=is_pinned(config),
    )


def _why_unjudged(facts: ConfigFacts, submission: Submission) -> str:
    """Why a run can't be estimated by what is known of it; else empty."""
    planned = planned_of(submission)
    unknown = [words for name, words in _NEEDED.items() if not facts.knows(name)]
    per_node = world_of(submission).gpus_per_node
    if unknown == [_NEEDED["link_domain"]] and planned is not None and per_node:
        in_plan = planned.cluster.accelerators_per_node
        return f"the files have nodes of {per_node:,} GPUs, and plan.json nodes of {in_plan:,}"
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        return f"{' and '.join(unknown)} {verb} not known"
    if _trains_less(facts.config, submission, planned):
        return "less may be trained, or kept, than Adam keeps"
    return other_than_planned(submission)


def _trains_less(config: Config, submission: Submission, planned: Job | None) -> bool:
    """Whether training may keep less than Adam keeps for the whole model.

    That is so where only a part of the model is trained, and with most other optimizers. Where the
    planned job says so itself, its estimate counts it.
    """
    optimizer = str(config.value("/optimizer/type", "adamw")).lower()
    if optimizer not in ("adam", "adamw") or world_of(submission).expert > 1:
        return True
    texts = [word.raw for launch in submission.launches for word in launch.arguments]
    for arguments in submission.of_kind("training arguments"):
        texts += [f"{key} {value}" for key, value in arguments.values.items()]
    for pattern, job_says_so in _TRAINS_LESS:
        is_planned = planned is not None and job_says_so(planned.training)
        if not is_planned and any(map(pattern.search, texts)):
            return True
    return False


def _run_of_spec(facts: ConfigFacts, submission: Submission) -> Job | None:
    """The job of the spec or the plan, with the layout that the config and the launch give it.

    None where files and spec together leave something open on which memory depends.
    """
    planned, config, world = planned_of(submission), facts.config, world_of(submission)
    replicas = world.replicas
    if planned is None or not knows(planned, "layers") or not replicas:
        return None

    arguments = submission.of(TrainingArguments)
    trainer = arguments[0] if len(arguments) == 1 else None
    recompute = planned.pins.recompute
    micro_batch = config.whole("/train_micro_batch_size_per_gpu")
    if trainer is not None:
        if isinstance(trainer.value("gradient_checkpointing"), bool):
            recompute = "full" if trainer.is_on("gradient_checkpointing") else "none"
        if micro_batch is None:
            micro_batch = trainer.integer("per_device_train_batch_size")
    micro_batch = micro_batch or planned.pins.micro_batch
    if recompute is None or micro_batch is None or not 0 < micro_batch < _MOST_BATCH:
        return None

    pins = replace(
        planned.pins,
        **_groups(config, world, replicas),
        micro_batch=micro_batch,
        gradient_accumulation=max(planned.training.global_batch // (replicas * micro_batch), 1),
        recompute=recompute,
        offload=facts.job.pins.offload,
        zero_hpz=facts.job.pins.zero_hpz,
    )
    return replace(planned, pins=pins, origin=facts.job.origin)


def _groups(config: Config, world: World, replicas: int) -> dict[str, Any]:
    """The pins that files decide: how the launch divides its ranks, and the config's ZeRO stage."""
    return {
        "data": replicas,
        "tensor": world.tensor,
        "pipeline": world.pipeline,
        "context": world.context,
        "expert": 1,
        "zero_stage": config.stage,
    }


def _least_run(facts: ConfigFacts, submission: Submission) -> Job | None:
    """The run of the config's model that needs the least memory.

    All activations are recomputed, and a sequence has one token unless a job spec or plan has its
    length. The layout is that of config and launch; its ZeRO stage is open where it can't be read.
    None where the GPUs don't divide into replicas.
    """
    job, config = facts.job, facts.config
    world, planned = world_of(submission), planned_of(submission)
    replicas = world.replicas
    if not replicas:
        return None
    batch = config.whole("/train_micro_batch_size_per_gpu")
    if batch is None or not 0 < batch < _MOST_BATCH:
        batch = 1
    pins = Pins(
        **_groups(config, world, replicas),
        micro_batch=batch,
        gradient_accumulation=1,
        recompute="full",
        offload=job.pins.offload,
        zero_hpz=job.pins.zero_hpz,
        zero_copies=_copies(config, ranks=replicas * world.context),
    )
    is_auto = config.filled or config.auto_precision
    assumed: dict[str, Any] = {"sequence_length": 1, **_USUAL_TRAINING}
    if planned is not None:
        names = ("sequence_length", *_TRAINING_FACTS)
        assumed = {name: getattr(planned.training, name) for name in names}
    training = completed(
        job.training,
        global_batch=batch * replicas,
        precision="bf16" if config.precision is None or is_auto else config.precision,
        gradient_dtype="fp32" if config.accumulates_in == "fp32" else "same",
        **assumed,
    )
    return completed(job, pins=pins, training=training)


def _copies(config: Config, ranks: int) -> int | None:
    """The number of MiCS's groups, each of which has a copy of the states; None without MiCS."""
    shards = config.whole(_MICS)
    has_mics = config.stage == 3 and config.schema.key(_MICS) is not None
    if not has_mics or not shards or shards < 0:
        return None
    return ranks // shards if ranks % shards == 0 else None
