"""The needs of Megatron-Bridge's runs that dsgen wrote, as their overrides are now.

A recipe decides what no override says. So a run is estimated where its overrides are those of the
plan beside it, but for keys that a layout has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...estimate.layout import Layout
from ...facts.facts import Facts, knows
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
#: Keys of a layout, by the overrides that say them.
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
        given = run.overrides
        where = given.given[0].where if given.given else None
        job = _as_given(planned, given, run.gpus)
        layout = whole_layout(known_values(job)) if job is not None else None
        if where is None or job is None:
            continue
        if layout is None:
            yield Unjudged(where=where, reason="the spec leaves keys of the layout open")
            continue
        if not fits_integers(job, layout):
            continue
        if others := _others(job, layout, given):
            reason = f"what {', '.join(others[:MOST_NAMED])} changes isn't read"
            yield Unjudged(where=where, reason=reason)
            continue
        yield from need_of(submission, Facts(job=job), job, "cpu", of_spec=True, pinned=True)


def _as_given(planned: Job, given: BridgeOverrides, gpus: int | None) -> Job | None:
    """The planned job with the layout and the batch that the overrides say; None where they don't
    divide.
    """
    said: dict[str, Any] = {
        key: given.integer(name) for name, key in _PINS.items() if given.get(name) is not None
    }
    if any(value is None or value < 1 for value in said.values()) or gpus is None:
        return None
    pins = replace(planned.pins, **said)
    batch = given.integer(_BATCH) or planned.training.global_batch
    ranks = (pins.tensor or 1) * (pins.pipeline or 1) * (pins.context or 1)
    data = gpus // ranks
    if gpus % ranks or not pins.micro_batch or batch % (data * pins.micro_batch):
        return None  # which another rule says
    steps = batch // (data * pins.micro_batch)
    places = {
        f"/layout/{key}": override.where
        for name, key in _PINS.items()
        if (override := given.get(name)) is not None
    }
    return replace(
        planned,
        gpus=gpus,
        pins=replace(pins, data=data, gradient_accumulation=steps),
        training=replace(planned.training, global_batch=batch),
        origin=Origin(path=given.path, locations=places, vocabulary=_WORDS),
    )


def _others(job: Job, layout: Layout, given: BridgeOverrides) -> list[str]:
    """The keys with other values than dsgen writes for the layout, of those that may cost
    memory.
    """
    groups = overrides_of_plan(with_options(make_plan(job, layout)))
    words = (str(word).lstrip("+~").partition("=") for group in groups for word in group.arguments)
    written = {key: text for key, _, text in words}
    found = {key: override.text for key, override in given.last.items()}
    # A plan keeps no folders, of which those of packed data are said beside the packing.
    unpacked = [_PACKING] if job.packs_sequences and found.get(_PACKING) != "true" else []
    return unpacked + [
        key
        for key in dict.fromkeys((*found, *written))
        if found.get(key) != written.get(key)
        and key not in (*_PINS, _BATCH)
        and (key == _LENGTH or not key.startswith(_WITHOUT_MEMORY))
    ]
