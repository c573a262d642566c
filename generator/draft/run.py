"""One run of files that exist as a draft of a spec, with what its user says over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..dataclass import dataclass
from ..findings import Location
from ..job.schema import launch_keys
from ..secrets import Hider
from .configs import read_config
from .draft import Draft
from .find import ExistingRun
from .machines import read_machines
from .megatron import read_megatron
from .scripts import read_script

_USUAL_NODE = 8  #: GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedRun:
    """The draft of one run."""

    found: ExistingRun
    draft: Draft

    @property
    def missing(self) -> tuple[str, ...]:
        """Name what a job needs and nobody said: model, cluster, gpus, global batch."""
        spec = self.draft.spec
        lacks = [key for key in ("model", "cluster") if key not in spec]
        lacks += ["gpus"] if "gpus" not in spec and "nodes" not in spec else []
        return (*lacks, *(["training.global_batch"] if self.draft.get("training.global_batch") is None else []))


def draft_run(
    found: ExistingRun, others: Sequence[ExistingRun] = (), answers: Mapping[str, object] | None = None
) -> DraftedRun:
    """The spec of a run as its files say it; `answers`, by dotted path, go before what they say."""
    texts = found.submission.texts
    ours = {path for path, text in texts.items() if "# Written by dsgen " in text.content[:4096]}
    of_service = {job.path for job in found.submission.azureml_jobs}  # which has the values of its expressions
    draft = Draft(
        ours=frozenset(ours - of_service),
        hide=Hider(value for text in texts.values() for value in text.secret_values),
    )
    if found.megatron is not None and found.megatron.run is not None:
        read_megatron(draft, found, found.megatron)
    else:
        read_script(draft, found)
    if found.config is not None:
        read_config(draft, found.config, megatron=found.megatron is not None)
    read_machines(draft, found)
    for other in others if found.where.path not in ours else ():
        draft.leave(other.program, other.where, "another run: for its spec, give init its files alone")
    _answer(draft, answers or {})
    _complete(draft, found.where)
    _name_hosts(draft)
    return DraftedRun(found=found, draft=draft)


def _answer(draft: Draft, answers: Mapping[str, object]) -> None:
    """Put what the user says over what the files say."""
    for path, value in answers.items():
        if path in ("gpus", "nodes"):
            draft.spec.pop("gpus", None)
            draft.spec.pop("nodes", None)
        if path == "launch.target" and draft.get(path) not in (None, value):
            draft.spec["launch"].pop(str(draft.get(path)), None)
        draft.set(path, value)


def _name_hosts(draft: Draft) -> None:
    """Machines without a scheduler are named in a file, where they are several."""
    target, nodes = str(draft.get("launch.target")), draft.get("nodes")
    shell = "hostfile" in launch_keys(target)
    gpus, node = draft.get("gpus"), draft.get("cluster.accelerators_per_node") or _USUAL_NODE
    several = (isinstance(nodes, int) and nodes > 1) or (isinstance(gpus, int) and gpus > node)
    if shell and several and not draft.get(f"launch.{target}"):
        draft.set(f"launch.{target}.hostfile", "hostfile")
        draft.comments[f"launch.{target}.hostfile"] = "to be written: a line `HOST slots=GPUS` for each node"


def _unfit(batch: int, replicas: int, micro: int | None, steps: int | None) -> tuple[str, ...]:
    """The pins that a batch on so many replicas excludes, the fewest."""
    passes, size = ("gradient_accumulation",) if steps else (), ("micro_batch",) if micro else ()
    if micro and steps and micro * steps * replicas == batch:
        return ()
    if micro and batch % (micro * replicas) == 0:
        return passes
    if steps and batch % (steps * replicas) == 0:
        return size
    return (*passes, *size)


def _complete(draft: Draft, where: Location) -> None:
    """Add what follows from both: the GPUs of a batch, or the batch of the GPUs."""
    layout: dict[str, Any] = draft.spec.get("layout", {})
    micro, steps = layout.get("micro_batch"), layout.get("gradient_accumulation")
    ranks = 1
    for name in ("tensor", "pipeline", "context"):
        ranks *= layout.get(name) or 1
    batch, gpus = draft.get("training.global_batch"), draft.get("gpus")
    if (
        isinstance(batch, int)
        and isinstance(gpus, int)
        and gpus % ranks == 0
        and batch % (replicas := gpus // ranks) == 0
    ):
        for name in _unfit(batch, replicas, micro, steps):
            draft.leave(
                f"{name} {layout.pop(name)}", where, f"a batch of {batch} on {gpus} GPUs has another; left open"
            )
    if batch is None and isinstance(gpus, int) and micro and gpus % ranks == 0:
        draft.set("training.global_batch", micro * (steps or 1) * (gpus // ranks))
    elif gpus is None and draft.get("nodes") is None and batch and micro and steps and batch % (micro * steps) == 0:
        draft.set("gpus", batch // (micro * steps) * ranks)
        draft.comments["gpus"] = f"of the batch: {batch} / ({micro} × {steps}){f' × {ranks}' if ranks > 1 else ''}"
