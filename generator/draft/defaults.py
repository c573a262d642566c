"""The layout keys that no file of a launch sets.

Where the launch's program decides a key by its default, the draft pins that. Where something else
does that isn't read, such as the script's own code, the key is named as open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..estimate.layout import Layout
from ..job.records import Job
from ..programs.deepspeed.config import ZERO
from ..programs.trainer.submission import is_data_parallel
from ..rules.layout.identities import RECOMPUTE
from ..search import Plan
from ..search.refine import DETAILED, open_fields
from .draft import ASSUMED, Draft
from .scripts import is_hybrid

#: Fields that follow from the batch and the GPUs.
_OF_BATCH: Final = frozenset({"data", "micro_batch", "gradient_accumulation"})
#: Fields that a DeepSpeed config decides, or what says the same in its place.
_OF_ZERO: Final = frozenset({"zero_stage", "offload", "zero_copies", "zero_hpz"})
#: Fields that a training script's own code decides, where it isn't the Trainer's or Megatron's.
_OF_SCRIPT: Final = frozenset({"context", "pipeline", "recompute"})


def pin_defaults(draft: Draft, job: Job) -> None:
    """Pin the keys that a search would choose, but the launch's program decides by default."""
    decided = open_fields(job) - _undecided(draft)
    for name, value in _defaults(draft, job).items():
        if name in decided:
            draft.set(f"layout.{name}", value)


def assume_length(draft: Draft, job: Job) -> None:
    """Write down the sequence length that a plan counts on, where no file has one."""
    key = "training.sequence_length"
    if draft.get(key) is None:
        draft.set(key, job.training.sequence_length)
        draft.comments[key] = f"{ASSUMED}the files don't say it"


def name_open_fields(draft: Draft, plan: Plan) -> None:
    """Say which keys of the layout the files leave open, and what the plan has for them."""
    usual = Layout(data=1, recompute=plan.layout.recompute).to_dict()
    values = plan.layout.to_dict()
    undecided = open_fields(plan.job) & _undecided(draft)
    # A detail that matters little isn't worth a word where it has its usual value.
    details = DETAILED - {"recompute", "offload"}
    usual_details = {name for name in details if values[name] == usual[name]}
    names = [name for name in values if name in undecided - usual_details]
    if names:
        has = ", ".join(f"{name}: {values[name]}".lower() for name in names)
        why = f"{_reason(draft)}; the plan has {has}"
        draft.leave("layout", draft.found.where, why)


def _reason(draft: Draft) -> str:
    """Why the files leave keys of the layout open."""
    found = draft.found
    if found.trainer is not None and found.trainer.value("deepspeed") and found.config is None:
        return "the DeepSpeed config that the arguments name isn't among the files"
    if found.trainer is not None and found.launch is not None and is_data_parallel(found.launch):
        return "the launch shards nothing (DDP), which dsgen doesn't write"
    by = "recipe" if draft.overrides is not None else "script"
    return f"what the {by} decides isn't in the files"


def _undecided(draft: Draft) -> frozenset[str]:
    """The fields that the files' programs decide in a way that isn't read."""
    if draft.overrides is not None:  # by the recipe
        return frozenset(Layout.__dataclass_fields__) - _OF_BATCH
    if draft.found.megatron is not None:
        return _OF_BATCH
    undecided = frozenset[str]()
    if draft.found.trainer is None:
        undecided |= _OF_SCRIPT
    if draft.found.config is None and draft.get("layout.zero_stage") is None:
        undecided |= _OF_ZERO
    return undecided


def _defaults(draft: Draft, job: Job) -> Mapping[str, Any]:
    """The values that a launch has which asks for nothing, by field."""
    recompute = RECOMPUTE[job.pins.recompute or "none"]
    values = {**Layout(data=1, recompute=recompute).to_dict(), "zero_copies": _copies(draft, job)}
    return {name: value for name, value in values.items() if name not in _OF_BATCH}


def _copies(draft: Draft, job: Job) -> int | None:
    """Copies of the shards: one on each node of a hybrid strategy, one in each group of MiCS."""
    config = draft.found.config
    shards = config.whole(f"{ZERO}/mics_shard_size") if config is not None else None
    if shards is not None and shards > 0:
        return job.gpus // shards if job.gpus % shards == 0 else None
    return job.nodes if is_hybrid(draft) else 1
