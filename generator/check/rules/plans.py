"""Files beside a plan that dsgen wrote, against the plan's list of them."""

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
_READ_BY_NONE: Final = "arguments.txt"  #: by no program
_EDITED: Final = (
    "write the files anew with dsgen generate, or leave them: they are judged as they are"
)


class ChangedFile(NamedTuple):
    """A file that isn't as dsgen wrote it."""

    path: Path
    is_there: bool


def changed_files(submission: Submission) -> Iterator[ChangedFile]:
    """The files that a plan lists and that were changed since; none before they are written."""
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
    missed = {link.name for link in submission.references if not link.exists}
    for path, is_there in changed_files(submission):
        where, name = Location(path=str(path)), path.name
        if is_there and not submission.launches:
            continue  # the files here aren't what runs: that is read with others, or is missing
        if is_there:
            message = f"{name} was edited since dsgen wrote it: what plan.json says may not hold"
            yield Violation(where, message, _EDITED)
        elif name not in missed:  # else other rules say so of the line that names it
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
    changed = {str(file.path) for file in changed_files(submission)}
    edited = [claim for claim in world.claims if str(Path(claim.where.path)) in changed]
    each = gpus // nodes if nodes and gpus % nodes == 0 else None
    meant = {"GPUs": gpus, "processes": gpus, "nodes": nodes, "GPUs per node": each}
    differing = [claim for claim in edited if meant[claim.quantity] not in (None, claim.value)]
    # nodes and GPUs per node first: the others are reckoned from them
    differing.sort(key=lambda claim: claim.quantity not in ("nodes", "GPUs per node"))
    if not differing:
        return
    hosts, here = world.nodes or 0, differing[0].text
    if (on_each := world.gpus_per_node or 0) * hosts == world.gpus:
        here = f"{counted(hosts, 'node')} × {counted(on_each, 'GPU')}"
    planned = f"{counted(nodes, 'node')} × {counted(each, 'GPU')}" if nodes and each else None
    message = (
        f"{here} means {counted(world.gpus, 'GPU')}, but {plan.name} means {counted(gpus, 'GPU')}"
    )
    hint = (
        f"write {planned or counted(gpus, 'GPU')}, or write the files anew with dsgen generate "
        f"for {counted(world.gpus, 'GPU')}"
    )
    yield Violation(differing[0].where, message, hint)


def _other_nodes(submission: Submission) -> Violations:
    """Pods of an edited file that need nodes with other accelerators than the plan's.

    A spec says itself what is meant. Types that the catalog doesn't have say nothing.
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
    jobs = [each for each in submission.documents if isinstance(each, KubernetesJob)]
    for job, place, name in ((each, *named) for each in jobs for named in each.node_types()):
        node = types.get(f"{planned.provider}/{name.lower()}")
        is_edited = str(Path(job.path)) in changed
        if is_edited and node is not None and node.accelerator != card:
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
