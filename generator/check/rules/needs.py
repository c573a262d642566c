"""The runs of a submission of which the memory can be estimated, and why that of others can't be.

A run can be estimated where arguments or a config, a model and a cluster are known. Of Megatron's
arguments the whole run is estimated. A DeepSpeed config says little of activations, and FSDP's
settings less: what they leave open is the job spec's, or that of the plan beside the files. Without
either, only the least that the model of a DeepSpeed config can need is estimated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from ...dataclass import dataclass
from ...estimate.layout import Layout
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...facts.facts import UNKNOWN, Facts, completed, knows
from ...findings import Location
from ...job.records import Job, Pins, Training
from ...numerals import read_whole
from ...programs.deepspeed.config import OFFLOADED, Config
from ...programs.deepspeed.facts import ConfigFacts, config_facts
from ...programs.megatron.facts import MegatronFacts, at_least, megatron_facts
from ...programs.trainer.fsdp_config import Fsdp
from ...programs.trainer.training_arguments import TrainingArguments, known_arguments
from ...rules.layout.identities import known_values, whole_layout
from ...search.feasible import make_plan
from ...submission.launches import Launch
from ...submission.subjects import subject
from ...submission.submission import Submission
from ...submission.world import World, cluster_of, world_of
from ...text.around import text_around
from ...text.wording import whole_number

#: The facts without which a Megatron run can't be estimated.
_NEEDED: Final = (
    "cluster",
    "gpus",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "experts",
    "sequence_length",
    "micro_batch",
    "gradient_accumulation",
    "sequence_parallel",
    "tensor",
    "pipeline",
    "context",
    "expert",
    "virtual_pipeline",
    "zero_stage",
    "recompute",
    "offload",
    "precision",
    "attention",
    "optimizer",
)
#: Options with which a Megatron run isn't estimated here: they save memory in ways that the facts
#: don't hold, or make another model.
_NOT_ESTIMATED: Final = (
    "--recompute-modules",
    "--fine-grained-activation-offloading",
    "--cpu-offloading-num-layers",
    "--main-grads-dtype",
    "--main-params-dtype",
    "--exp-avg-dtype",
    "--exp-avg-sq-dtype",
    "--grad-reduce-in-bf16",
    "--optimizer-offload-fraction",
    "--memory-centric-tiled-linear",
    "--multi-latent-attention",
    "--moe-layer-freq",
    "--heterogeneous-layers-config-path",
    "--hybrid-layer-pattern",
    "--experimental-attention-variant",
    "--num-experts-teacher",
    "--freeze-all-layers",
    "--lora-rank",
    "--random-ltd",
    "--rampup-batch-size",
    "--step-batch-size-schedule",
)
#: Words of arguments with which less is trained, or kept, than Adam keeps for every parameter, and
#: what a job has that says so.
_TRAINS_LESS: Final[tuple[tuple[re.Pattern[str], Callable[[Training], bool]], ...]] = (
    (re.compile(r"lora|peft|adapter", re.I), lambda training: training.lora is not None),
    (
        re.compile(r"4bit", re.I),
        lambda training: training.lora is not None and training.lora.base == "4bit",
    ),
    (re.compile(r"8bit", re.I), lambda training: training.optimizer == "adamw-8bit"),
    (re.compile(r"freeze|frozen|galore|adafactor|\blion\b|inference", re.I), lambda _: False),
)

#: Facts of the training that a config doesn't hold: they are the job spec's, where there is one,
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
#: and these otherwise.
_USUAL_TRAINING: Final = {"optimizer": "adamw", "attention": "flash"}

#: What a run of Megatron's and the model of a job have both, and the options that say it: they are
#: of one model where what is given is the same.
_SHAPE: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("--num-layers",),
    "hidden": ("--hidden-size",),
    "heads": ("--num-attention-heads",),
    "kv_heads": ("--num-query-groups", "--num-key-value-heads"),
    "head_dim": ("--kv-channels",),
    "experts": ("--num-experts",),
    "vocab": ("--vocab-size",),
}
_OF_EXPERTS: Final[Mapping[str, tuple[str, ...]]] = {
    "experts_per_token": ("--moe-router-topk", "--topk"),
    "moe_ffn": ("--moe-ffn-hidden-size",),
}
_OF_DENSE: Final[Mapping[str, tuple[str, ...]]] = {"ffn": ("--ffn-hidden-size",)}
_OF_WORLD: Final = ("tensor", "pipeline", "context", "expert", "micro_batch")
_USUAL_OPTIMIZERS: Final = ("adamw", "adam", "sgd")
_MOST_NAMED: Final = 3  #: facts or options in a reason
_MOST_BATCH: Final = 10_000  #: sequences of a pass
_LEAST_ONLY: Final = (
    "without layout.recompute and the micro batch, only the least that it can need is"
)
_OTHER_WORDS: Final = "options of the script's own are others than the plan's"
#: Sizes of accelerate's mesh, as variables have them, and the keys of the layout that they are.
_OF_MESH: Final = "PARALLELISM_CONFIG_"
_MESH: Final = {"dp_replicate_size": "zero_copies", "cp_size": "context"}
_MICS: Final = "/zero_optimization/mics_shard_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A run with the memory that it needs."""

    facts: Facts
    job: Job  #: made of the facts, with assumptions for those that are unknown
    layout: Layout
    ledger: Memory
    #: whether the submission has a job spec; its plan has compared the ZeRO stages by their time
    planned: bool
    device: str | None  #: where offloaded states go: `cpu` or `nvme`
    pinned: bool  #: whether their buffers are pinned
    #: whether all memory is counted; of a config alone, little more than the model states is
    whole: bool
    #: whether a job spec has what the files leave open, so that its plan's verdict holds
    of_spec: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A run of which the memory isn't estimated, though a job or its machines are known."""

    where: Location
    reason: str


@subject(
    "DeepSpeed config", "launch script", "AzureML job", "Megatron arguments", "training arguments"
)
def needs(submission: Submission) -> Iterator[Need]:
    """Every run of the submission that can be estimated.

    They are those of Megatron, else of DeepSpeed, else of the Trainer's FSDP.
    """
    return (run for run in _runs(submission) if isinstance(run, Need))


def unjudged(submission: Submission) -> Iterator[Unjudged]:
    """Every run of the submission that can't be estimated, with the reason."""
    return (run for run in _runs(submission) if isinstance(run, Unjudged))


@lru_cache(maxsize=4)
def _runs(submission: Submission) -> tuple[Need | Unjudged, ...]:
    of_megatron = megatron_facts(submission)
    if of_megatron:
        every: Iterable[Iterator[Need | Unjudged]] = (
            _of_megatron(facts, submission) for facts in of_megatron
        )
        return tuple(chain.from_iterable(every))
    of_configs = tuple(config_facts(submission))
    if of_configs:
        every = (_of_config(facts, submission) for facts in of_configs)
        return tuple(chain.from_iterable(every))
    return tuple(_of_fsdp(submission))


def _planned(submission: Submission) -> Job | None:
    """The job of the spec, else that of the plan beside the files."""
    return submission.job or submission.planned


def _of_megatron(run: MegatronFacts, submission: Submission) -> Iterator[Need | Unjudged]:
    """The need of a run of Megatron's, or why it isn't estimated."""
    planned, where = _planned(submission), run.run.locate("")
    if unknown := [name for name in _NEEDED if not run.knows(name)]:
        names = ", ".join(name.replace("_", " ") for name in unknown[:_MOST_NAMED])
        yield Unjudged(where=where, reason=f"not known: {names}")
        return

    job = _as_planned(run, planned) if planned is not None else None
    unread = [name for name in _NOT_ESTIMATED if run.run.may_have(name)]
    if unread and (job is None or not _as_written(run, job, unread)):
        reason = f"what {', '.join(unread[:_MOST_NAMED])} saves isn't read"
        yield Unjudged(where=where, reason=reason)
        return
    if job is None and run.job.model.experts:
        yield Unjudged(where=where, reason="no job says of this model with experts what they are")
        return

    job = job or at_least(run.job)
    if planned is not None:
        job = completed(job, headroom=planned.headroom)
    config = run.run.config
    pinned = config is None or _is_pinned(config)
    yield from _need(submission, run, job, "cpu", pinned=pinned)


def _as_planned(run: MegatronFacts, planned: Job) -> Job | None:
    """The job of spec or plan, with all that the arguments say instead.

    None where it is another model's, or another program's.
    """
    if not knows(planned, "layers") or planned.framework.name != run.job.framework.name:
        return None
    model = planned.model
    shape = {**_SHAPE, **(_OF_EXPERTS if model.experts else _OF_DENSE)}
    for name, options in shape.items():
        stated, own = run.said["model"].get(name, UNKNOWN), getattr(model, name, None)
        if own is not None and stated != own and run.run.has_any(*options):
            return None
    if model.experts and not run.run.has("--num-experts"):
        return None

    said = {
        name: value
        for name, value in run.said["training"].items()
        if hasattr(planned.training, name)
    }
    if UNKNOWN in said.values():
        return None
    if planned.training.optimizer not in _USUAL_OPTIMIZERS:
        said.pop("optimizer", None)  # it is read as one of these
    said["global_batch"] = run.run.global_batch or 1
    training = completed(planned.training, **said)
    # What no option says is as planned.
    stated_keys = {*run.said["layout"], "data", *_OF_WORLD}
    rest = {
        name: value
        for name in Pins.__slots__
        if name not in stated_keys and (value := getattr(planned.pins, name)) is not None
    }
    job = completed(run.job, model=model, training=training, pins=replace(run.job.pins, **rest))
    return completed(job, calibration=planned.calibration, launch=planned.launch)


def _as_written(run: MegatronFacts, job: Job, options: Iterable[str]) -> bool:
    """Whether dsgen writes these options for a job as they are: its estimate counts them."""
    layout = whole_layout(known_values(job))
    if layout is None or not _fits_integers(job, layout):
        return False
    from ...programs.megatron.write import planned, written_options  # saves start-up time

    groups = written_options(planned(make_plan(job, layout)), run.run.flavour)
    written = {name: value for _, group in groups for name, value in group.items()}
    return all(
        run.run.has(name) and _words(written.get(name)) == _words(run.run.value(name))
        for name in options
    )


def _words(value: object) -> tuple[str, ...]:
    """The words of an option's value."""
    return tuple(map(str, value)) if isinstance(value, (tuple, list)) else (str(value),)


def _of_config(facts: ConfigFacts, submission: Submission) -> Iterator[Need | Unjudged]:
    """The need of a run with a DeepSpeed config, or why it isn't estimated."""
    config, planned = facts.config, _planned(submission)
    where = config.locate("")
    if unknown := [name for name in ("layers", "link_domain", "gpus") if not facts.knows(name)]:
        shown = {"layers": "the model", "link_domain": "the cluster", "gpus": "the number of GPUs"}
        verb = "is" if len(unknown) == 1 else "are"
        reason = f"{' and '.join(shown[name] for name in unknown)} {verb} not known"
        yield Unjudged(where=where, reason=reason)
        return
    if _trains_less(config, submission, planned):
        yield Unjudged(where=where, reason="less may be trained, or kept, than Adam keeps")
        return
    if not _is_of_plan(submission):
        yield Unjudged(where=where, reason=_OTHER_WORDS)
        return

    planned_run = _run_of_spec(facts, submission)
    estimated_run = planned_run or _least_run(facts, submission)
    if estimated_run is None:
        yield Unjudged(where=where, reason="how the GPUs are divided is not known")
        return
    if planned_run is None and planned is not None:
        yield Unjudged(where=where, reason=_LEAST_ONLY)
    yield from _need(
        submission,
        facts,
        estimated_run,
        config.offload("optimizer"),
        of_spec=planned_run is not None,
        pinned=_is_pinned(config),
    )


def _of_fsdp(submission: Submission) -> Iterator[Need | Unjudged]:
    """The needs of the Trainer's runs with FSDP, where a job says what their files leave open."""
    planned = _planned(submission)
    if planned is None or planned.engine.sharding != "units":
        return
    from ...programs.trainer.rules.fsdp import sharded  # saves start-up time

    for fsdp in sharded(submission):
        job = _run_of_fsdp(fsdp, submission, planned)
        if isinstance(job, str):
            yield Unjudged(where=fsdp.where, reason=job)
        else:
            device = "cpu" if fsdp.offloads else None
            yield from _need(submission, Facts(job=job), job, device, of_spec=True, pinned=True)


def _run_of_fsdp(fsdp: Fsdp, submission: Submission, planned: Job) -> Job | str:
    """The job with the layout of FSDP's settings and the arguments, or what isn't known."""
    world, arguments = world_of(submission), fsdp.arguments
    batch = arguments.batch if arguments is not None else None
    if not knows(planned, "layers"):
        return "the model is not known"
    if batch is None or arguments is None or batch.micro < 1:
        return "the batch of a GPU is not known"
    if not (replicas := world.replicas) or cluster_of(submission) is None:
        return "the number of GPUs is not known"
    stage = fsdp.zero_stage
    is_missing = arguments.has("fsdp_config") and not fsdp.values
    if stage is None or fsdp.version is None or is_missing or fsdp.switch("xla", False):
        return "how FSDP shards is not known"
    if not _is_of_plan(submission):
        return _OTHER_WORDS
    checkpoints = fsdp.switch("activation_checkpointing", False)
    if not checkpoints:
        checkpoints = arguments.value("gradient_checkpointing", checkpoints) is True
    mesh = _mesh_of(fsdp, submission)
    if mesh is None:
        return "the sizes of the mesh are not known"
    copies: dict[str, Any] = (
        {"zero_copies": world.nodes} if fsdp.running.startswith("HYBRID") else {}
    )
    pins = replace(
        planned.pins,
        data=replicas,
        tensor=1,
        pipeline=1,
        zero_stage=stage,
        micro_batch=batch.micro,
        gradient_accumulation=max(batch.sequences // batch.micro, 1),
        recompute="full" if checkpoints else "none",
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


def _mesh_of(fsdp: Fsdp, submission: Submission) -> dict[str, int] | None:
    """Copies of the shards, and context parallelism, of accelerate's mesh; None where not known."""
    given: dict[str, object] = {name: setting.value for name, setting in fsdp.mesh.items()}
    for script in submission.commands:
        for one in script.shell.assignments:
            if one.name.startswith(_OF_MESH):
                given[one.name.removeprefix(_OF_MESH).lower()] = read_whole(one.value)
    sizes = {key: whole_number(given[name]) for name, key in _MESH.items() if name in given}
    if any(size is None or size < 1 for size in sizes.values()):
        return None
    return {key: size for key, size in sizes.items() if size is not None}


def _syncs_each_batch(arguments: TrainingArguments) -> bool:
    """Whether `accelerator_config` has gradients reduced in each micro-batch."""
    value = arguments.value("accelerator_config")
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return re.search(r'"sync_each_batch"\s*:\s*true', text) is not None


def _is_of_plan(submission: Submission) -> bool:
    """Whether the plan beside files is still of their run, by what dsgen doesn't read.

    The script's own options, such as the length of a sequence or the model, are those that it was
    written with: they stand in `arguments.txt`, too. With a job spec they are what that says.
    """
    if submission.job is not None or submission.planned is None:
        return True
    listed = submission.plan_files[0].parent / "arguments.txt"
    words = frozenset(text_around(listed, listed.parent).split())
    return all(
        word in words for arguments in submission.launches for name, word in _own_values(arguments)
    )


def _own_values(launch: Launch) -> Iterator[tuple[str, str]]:
    """The values of options that are the program's own, and not the Trainer's."""
    name = ""
    for word in launch.arguments:
        text = word.value if word.value is not None else word.raw
        if text.startswith("--"):
            name = text[2:].partition("=")[0]
            text = text.partition("=")[2]
        if text and name and name.replace("-", "_") not in known_arguments():
            yield name, text


def _is_pinned(config: Config) -> bool:
    """Whether any buffer of offloaded states is pinned, or may be."""
    return any(
        config.switch(f"/zero_optimization/offload_{what}/pin_memory") is not False
        for what in OFFLOADED
        if config.offloads(what)
    )


def _need(
    submission: Submission,
    facts: Facts,
    job: Job,
    device: str | None,
    *,
    of_spec: bool = False,
    pinned: bool,
) -> Iterator[Need]:
    """The need of one run; nothing where its layout isn't known or its sizes are absurd."""
    layout = whole_layout(known_values(job))
    whole = of_spec or isinstance(facts, MegatronFacts)
    if layout and (not whole or _fits_integers(job, layout)):
        yield Need(
            facts=facts,
            job=job,
            layout=layout,
            ledger=memory(job, layout),
            planned=submission.job is not None,
            device=device,
            pinned=pinned,
            whole=whole,
            of_spec=of_spec,
        )


def _trains_less(config: Config, submission: Submission, planned: Job | None) -> bool:
    """Whether training may keep less than Adam keeps for the whole model, or than a job says.

    That is so where only a part of the model is trained, and with most other optimizers.
    """
    kind = str(config.value("/optimizer/type", "adamw")).lower()
    texts = [word.raw for launch in submission.launches for word in launch.arguments]
    for arguments in submission.of_kind("training arguments"):
        texts += [f"{key} {value}" for key, value in arguments.values.items()]
    unsaid = (
        pattern for pattern, says in _TRAINS_LESS if planned is None or not says(planned.training)
    )
    return (
        kind not in ("adam", "adamw")
        or any(pattern.search(text) for pattern in unsaid for text in texts)
        or world_of(submission).expert > 1
    )


def _run_of_spec(facts: ConfigFacts, submission: Submission) -> Job | None:
    """The job of the spec or the plan, with the layout that the config and the launch give it.

    None where files and spec together leave something open on which memory depends.
    """
    planned, config, world = _planned(submission), facts.config, world_of(submission)
    if planned is None or not knows(planned, "layers") or not (replicas := world.replicas):
        return None
    arguments = submission.of(TrainingArguments)
    trainer = arguments[0] if len(arguments) == 1 else None
    recompute = planned.pins.recompute
    if trainer is not None and isinstance(trainer.value("gradient_checkpointing"), bool):
        recompute = "full" if trainer.is_on("gradient_checkpointing") else "none"
    micro_batch = config.whole("/train_micro_batch_size_per_gpu")
    if micro_batch is None and trainer is not None:
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
    """The pins that a submission decides: how it divides its ranks, and the config's stage."""
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

    All activations are recomputed, and a sequence has one token unless a job spec has its length.
    The layout is that of config and submission; its ZeRO stage is open where it can't be read. None
    where the GPUs don't divide into replicas.
    """
    job, config, world, planned = (
        facts.job,
        facts.config,
        world_of(submission),
        _planned(submission),
    )
    if not (replicas := world.replicas):
        return None
    batch, shards = config.whole("/train_micro_batch_size_per_gpu"), config.whole(_MICS)
    batch = batch if batch is not None and 0 < batch < _MOST_BATCH else 1
    has_copies = (
        config.stage == 3 and config.schema.key(_MICS) is not None and shards and shards > 0
    )
    ranks = replicas * world.context
    pins = Pins(
        **_groups(config, world, replicas),
        micro_batch=batch,
        gradient_accumulation=1,
        recompute="full",
        offload=job.pins.offload,
        zero_hpz=job.pins.zero_hpz,
        zero_copies=ranks // shards if has_copies and shards and ranks % shards == 0 else None,
    )
    is_auto = config.filled or config.auto_precision
    training = completed(
        job.training,
        sequence_length=planned.training.sequence_length if planned else 1,
        global_batch=batch * replicas,
        precision="bf16" if config.precision is None or is_auto else config.precision,
        gradient_dtype="fp32" if config.accumulates_in == "fp32" else "same",
        **(
            {name: getattr(planned.training, name) for name in _TRAINING_FACTS}
            if planned
            else _USUAL_TRAINING
        ),
    )
    return completed(job, pins=pins, training=training)


def _fits_integers(job: Job, layout: Layout) -> bool:
    """Whether the products of all sizes fit into the 64-bit integers that numpy computes with."""
    model, training = job.model, job.training
    heads = max(getattr(mixer, "heads", 1) for mixer in model.mixers)
    head_dim = max(getattr(mixer, "head_dim", 1) for mixer in model.mixers)
    widths = model.hidden * (model.hidden + model.ffn) * heads * head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * heads * batch) < 2**62
