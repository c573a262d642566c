"""Rules on files beside a plan that dsgen wrote: against its list of them, its GPUs and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ...findings import NOTE, WARNING, Location, Violation, Violations
from ...rules.violations import derived
from ...submission.plan_file import cluster_of, files_of
from ...submission.subjects import submissions
from ...submission.submission import Submission
from ...submission.world import gpus_of, gpus_planned_otherwise, world_of
from ...text.around import is_before_writing, is_readable
from ...text.wording import counted

_LISTED: Final = derived("plan.json lists every file that dsgen wrote with it, by its hash")
_PLANNED: Final = derived("plan.json has the GPUs for which its batch and layout are reckoned")
_LARGEST: Final = 2_000_000  #: bytes; dsgen writes kilobytes
_READ_BY_NONE: Final = "arguments.txt"  #: a file that no program reads
_EDITED: Final = (
    "write the files anew with dsgen generate, or leave them: they are judged as they are"
)


class ChangedFile(NamedTuple):
    """A file that isn't as dsgen wrote it."""

    path: Path
    is_there: bool


def changed_files(submission: Submission) -> Iterator[ChangedFile]:
    """The files that a plan lists and that were changed or removed since.

    There are none before the files are written.
    """
    if is_before_writing():
        return
    for plan in submission.plan_files:
        for name, digest in files_of(plan):
            path = plan.parent / name
            is_there = is_readable(path, plan.parent)
            if not is_there or _digest(path) != digest:
                yield ChangedFile(path, is_there)


@submissions.rule("SUB017", NOTE, "silent", _LISTED, reads=("launch script", "DeepSpeed config"))
def files_are_the_plans(submission: Submission) -> Violations:
    """Files beside a plan.json are there, and as dsgen wrote them with it.
    Prevents: The run is another than the one that was planned: its memory and time are not those of
    plan.json. A file that is missing is a warning.
    Fix: write the files anew with dsgen generate. Edited ones may be left: what they say is judged
    """
    named_and_missing = {link.name for link in submission.references if not link.exists}
    for path, is_there in changed_files(submission):
        where, name = Location(path=str(path)), path.name
        if is_there:
            # Without a launch the files here aren't what runs: that is read with others, or is
            # missing.
            if submission.launches:
                message = (
                    f"{name} was edited since dsgen wrote it: what plan.json says may not hold"
                )
                yield Violation(where, message, _EDITED)
        elif name not in named_and_missing:  # else other rules report the line that names it
            severity = NOTE if name == _READ_BY_NONE else WARNING
            message = f"{name} is not there, which plan.json lists"
            hint = f"put {name} back, or write the files anew with dsgen generate"
            yield Violation(where, message, hint, severity=severity)


@submissions.rule("SUB018", WARNING, "silent", _PLANNED, reads=("launch script",))
def gpus_are_the_plans(submission: Submission) -> Violations:
    """An edited launch file beside a plan.json has as many GPUs as the plan, on nodes of its type.
    Prevents: Another job is trained than the one that was planned: its global batch, memory and
    time are not those of plan.json.
    Fix: write the nodes and GPUs of plan.json, or write the files anew for the others
    """
    yield from _other_nodes(submission)
    gpus, world = gpus_planned_otherwise(submission), world_of(submission)
    if gpus is None or world.gpus is None:
        return

    plan = submission.plan_files[0]
    _, nodes = gpus_of(plan)
    per_node = gpus // nodes if nodes and gpus % nodes == 0 else None
    planned = {"GPUs": gpus, "processes": gpus, "nodes": nodes, "GPUs per node": per_node}

    changed = {str(file.path) for file in changed_files(submission)}
    edited = [claim for claim in world.claims if str(Path(claim.where.path)) in changed]
    differing = [claim for claim in edited if planned[claim.quantity] not in (None, claim.value)]
    # Nodes and GPUs per node first: the others are reckoned from them.
    differing.sort(key=lambda claim: claim.quantity not in ("nodes", "GPUs per node"))
    if not differing:
        return

    here = differing[0].text
    nodes_here, per_node_here = world.nodes or 0, world.gpus_per_node or 0
    if nodes_here * per_node_here == world.gpus:
        here = f"{counted(nodes_here, 'node')} × {counted(per_node_here, 'GPU')}"
    message = (
        f"{here} means {counted(world.gpus, 'GPU')}, but {plan.name} means {counted(gpus, 'GPU')}"
    )
    in_plan = counted(gpus, "GPU")
    if nodes and per_node:
        in_plan = f"{counted(nodes, 'node')} × {counted(per_node, 'GPU')}"
    hint = (
        f"write {in_plan}, or write the files anew with dsgen generate "
        f"for {counted(world.gpus, 'GPU')}"
    )
    yield Violation(differing[0].where, message, hint)


def _other_nodes(submission: Submission) -> Violations:
    """The first edited file whose pods need nodes with other accelerators than the plan's.

    Where a job spec is given, it says which nodes are meant. Node types that the catalog doesn't
    have can't be compared.
    """
    from ...catalog import load_catalog  # these save start-up time where there is no plan
    from ...programs.kubernetes.job import KubernetesJob

    if submission.context.job or submission.job is not None or len(submission.plan_files) != 1:
        return
    plan, types = submission.plan_files[0], load_catalog().node_types
    planned = types.get(cluster_of(plan))
    if planned is None:
        return
    meant, card = planned.name.partition("/")[2], planned.accelerator
    changed = {str(file.path) for file in changed_files(submission)}
    for job in submission.of(KubernetesJob):
        if str(Path(job.path)) not in changed:
            continue
        for place, name in job.node_types():
            node = types.get(f"{planned.provider}/{name.lower()}")
            if node is None or node.accelerator == card:
                continue
            message = (
                f"the pods need {name}, with {node.accelerator.name}, but {plan.name} means "
                f"{meant}, with {card.name}: memory and time aren't those of the plan"
            )
            remedy = f"write the files anew with dsgen generate for cluster: {node.name}"
            yield Violation(job.locate(place), message, f"write {meant}, or {remedy}")
            return


def _digest(path: Path) -> str:
    """The hash of a file as plans have it; empty where it can't be read, or is far too large."""
    from ...programs.program import content_hash  # saves start-up time where there is no plan

    try:
        return content_hash(path.read_bytes()) if path.stat().st_size < _LARGEST else ""
    except OSError:
        return ""
