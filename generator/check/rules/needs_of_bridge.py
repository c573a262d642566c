"""The memory needs of Megatron-Bridge's runs that dsgen wrote, with their overrides as they are.

A recipe decides whatever no override sets, and recipes aren't read. So a run is estimated only
where a plan is beside it, and no override differs from the plan's but those of the layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...estimate.layout import Layout
from ...facts.facts import Facts, knows
from ...findings import Location
from ...job.records import Job, Origin
from ...programs.megatron.write import planned as with_options
from ...programs.megatron_bridge.overrides import BridgeOverrides, runs_in
from ...programs.megatron_bridge.write import overrides as overrides_of_plan
from ...rules.layout.identities import known_values, whole_layout
from ...search.feasible import make_plan
from ...submission.submission import Submission
from ...text.wording import Vocabulary
from .need import MOST_NAMED, Need, Unjudged, fits_integers, need_of, planned_of

_PROGRAM: Final = "megatron-bridge"
#: Keys of a layout, by the overrides that set them.
_PINS: Final[Mapping[str, str]] = {
    "model.tensor_model_parallel_size": "tensor",
    "model.pipeline_model_parallel_size": "pipeline",
    "model.context_parallel_size": "context",
    "model.expert_model_parallel_size": "expert",
    "train.micro_batch_size": "micro_batch",
}
_BATCH: Final = "train.global_batch_size"
#: Sections and keys that cost no device memory.
_WITHOUT_MEMORY: Final = (
    "checkpoint.",
    "logger.",
    "scheduler.",
    "rng.",
    "validation.",
    "train.train_",
    "train.eval_",
    "train.exit_",
    "train.manual_gc",
    "optimizer.lr",
    "optimizer.min_lr",
    "optimizer.weight_decay",
    "optimizer.clip_grad",
    "optimizer.adam_",
    "tokenizer.",
    "dataset.",
)
_LENGTH: Final = "dataset.seq_length"
_PACKING: Final = "dataset.enable_offline_packing"
_WORDS: Final = Vocabulary(
    phrases={
        **{key: f"{override}={{}}" for override, key in _PINS.items()},
        "global_batch": f"{_BATCH}={{}}",
        "gpus": "{} GPUs",
        "data": "{} replicas",
    }
)


def of_bridge(submission: Submission) -> Iterator[Need | Unjudged]:
    """The needs of Megatron-Bridge's runs with a plan beside them, or why one isn't estimated."""
    planned = planned_of(submission)
    if planned is None or planned.framework.name != _PROGRAM or not knows(planned, "layers"):
        return
    for run in runs_in(submission):
        overrides = run.overrides
        job = _as_overridden(planned, overrides, run.gpus)
        if not overrides.given or job is None:
            continue
        where = overrides.given[0].where
        layout = whole_layout(known_values(job))
        if layout is None:
            yield Unjudged(where=where, reason="the spec leaves keys of the layout open")
            continue
        if not fits_integers(job, layout):
            continue
        differing = _other_than_planned(job, layout, overrides)
        if differing:
            reason = f"what {', '.join(differing[:MOST_NAMED])} changes isn't read"
            yield Unjudged(where=where, reason=reason)
            continue
        yield from need_of(submission, Facts(job=job), job, "cpu", of_spec=True, pinned=True)


def _as_overridden(planned: Job, overrides: BridgeOverrides, gpus: int | None) -> Job | None:
    """The planned job with the layout and the batch of the overrides.

    None where these aren't known, or don't divide.
    """
    sizes: dict[str, Any] = {}
    places = dict[str, Location]()
    for name, key in _PINS.items():
        override = overrides.get(name)
        if override is not None:
            sizes[key] = overrides.integer(name)
            places[f"/layout/{key}"] = override.where
    if gpus is None or any(size is None or size < 1 for size in sizes.values()):
        return None

    pins = replace(planned.pins, **sizes)
    batch = overrides.integer(_BATCH) or planned.training.global_batch
    ranks = (pins.tensor or 1) * (pins.pipeline or 1) * (pins.context or 1)
    data = gpus // ranks
    if gpus % ranks or not pins.micro_batch or batch % (data * pins.micro_batch):
        return None  # another rule reports it
    steps = batch // (data * pins.micro_batch)
    return replace(
        planned,
        gpus=gpus,
        pins=replace(pins, data=data, gradient_accumulation=steps),
        training=replace(planned.training, global_batch=batch),
        origin=Origin(path=overrides.path, locations=places, vocabulary=_WORDS),
    )


def _other_than_planned(job: Job, layout: Layout, overrides: BridgeOverrides) -> list[str]:
    """The keys that may cost memory and have other values than dsgen writes for the layout."""
    groups = overrides_of_plan(with_options(make_plan(job, layout)))
    words = (str(word).lstrip("+~").partition("=") for group in groups for word in group.arguments)
    planned = {key: text for key, _, text in words}
    actual = {key: override.text for key, override in overrides.last.items()}

    differing = list[str]()
    # Packing isn't among `planned`: it is written along with the data's folder, which no plan has.
    if job.packs_sequences and actual.get(_PACKING) != "true":
        differing.append(_PACKING)
    for key in dict.fromkeys((*actual, *planned)):
        is_of_layout = key in _PINS or key == _BATCH
        costs_memory = key == _LENGTH or not key.startswith(_WITHOUT_MEMORY)
        if costs_memory and not is_of_layout and actual.get(key) != planned.get(key):
            differing.append(key)
    return differing
