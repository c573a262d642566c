"""The memory needs of Megatron's runs: their arguments say all, so the whole run is estimated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...catalog.model import Model
from ...facts.facts import UNKNOWN, completed, knows
from ...job.records import Job, Pins
from ...programs.megatron.facts import MegatronFacts, at_least
from ...rules.layout.identities import known_values, whole_layout
from ...search.feasible import make_plan
from ...submission.submission import Submission
from .need import MOST_NAMED, Need, Unjudged, fits_integers, is_pinned, need_of, planned_of

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
#: Attributes of a model, and Megatron's options that give them. A run trains a job's model where
#: those that are given are the same.
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


def of_megatron(run: MegatronFacts, submission: Submission) -> Iterator[Need | Unjudged]:
    """The need of a run of Megatron's, or why it isn't estimated."""
    planned, where = planned_of(submission), run.run.locate("")
    unknown = [name for name in _NEEDED if not run.knows(name)]
    if unknown:
        names = ", ".join(name.replace("_", " ") for name in unknown[:MOST_NAMED])
        yield Unjudged(where=where, reason=f"not known: {names}")
        return

    job = _as_planned(run, planned) if planned is not None else None
    unread = [name for name in _NOT_ESTIMATED if run.run.may_have(name)]
    if unread and (job is None or not _are_as_written(run, job, unread)):
        reason = f"what {', '.join(unread[:MOST_NAMED])} saves isn't read"
        yield Unjudged(where=where, reason=reason)
        return
    if job is None and run.job.model.experts:
        yield Unjudged(where=where, reason=_why_experts_are_unknown(run, planned))
        return

    job = job or at_least(run.job)
    if planned is not None:
        job = completed(job, headroom=planned.headroom)
    config = run.run.config
    pinned = config is None or is_pinned(config)
    yield from need_of(submission, run, job, "cpu", pinned=pinned)


def _as_planned(run: MegatronFacts, planned: Job) -> Job | None:
    """The job of spec or plan, with what the arguments say in place of its own.

    None where its model or its program is another.
    """
    if not knows(planned, "layers") or planned.framework.name != run.job.framework.name:
        return None
    model = planned.model
    if any(_differing(run, model)) or (model.experts and not run.run.has("--num-experts")):
        return None

    said = {
        name: value
        for name, value in run.said["training"].items()
        if hasattr(planned.training, name)
    }
    if UNKNOWN in said.values():
        return None
    if planned.training.optimizer not in _USUAL_OPTIMIZERS:
        # Megatron's options don't name such an optimizer: they are read as one of the usual ones.
        said.pop("optimizer", None)
    said["global_batch"] = run.run.global_batch or 1
    training = completed(planned.training, **said)

    # What no option says is as planned.
    said_keys = {*run.said["layout"], "data", *_OF_WORLD}
    rest = dict[str, Any]()
    for name in Pins.__slots__:
        value = getattr(planned.pins, name)
        if name not in said_keys and value is not None:
            rest[name] = value
    job = completed(run.job, model=model, training=training, pins=replace(run.job.pins, **rest))
    return completed(job, calibration=planned.calibration, launch=planned.launch)


def _differing(run: MegatronFacts, model: Model) -> Iterator[str]:
    """What the arguments give another value than a job's model has: `--num-experts (8)`."""
    shape = {**_SHAPE, **(_OF_EXPERTS if model.experts else _OF_DENSE)}
    for name, options in shape.items():
        by_arguments, by_plan = run.said["model"].get(name, UNKNOWN), getattr(model, name, None)
        if by_plan is not None and by_arguments != by_plan and run.run.has_any(*options):
            option = next(filter(run.run.has, options))
            yield f"{option} ({name.replace('_', ' ')} {by_plan} in the job)"


def _why_experts_are_unknown(run: MegatronFacts, planned: Job | None) -> str:
    """Why a model with experts isn't estimated, and what to pass."""
    differing = list(_differing(run, planned.model)) if planned and knows(planned, "layers") else []
    if differing:
        return f"the arguments and the job differ in {', '.join(differing[:MOST_NAMED])}"
    return (
        "the width of the experts, how many a token takes and the layers that have them are read "
        "from a job spec alone: give --job (`dsgen init --from` the folder writes one)"
    )


def _are_as_written(run: MegatronFacts, job: Job, options: Iterable[str]) -> bool:
    """Whether the run has these options as dsgen writes them for the job: the estimate counts them.

    So it is where the job itself asks for what they do.
    """
    layout = whole_layout(known_values(job))
    if layout is None or not fits_integers(job, layout):
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
