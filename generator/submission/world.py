"""The GPUs of a submission, and how they are divided.

Every document that sets them is read, and what follows from these is worked out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, get_args

from ..dataclass import dataclass
from ..findings import Location
from ..job.records import Cluster
from ..text.around import text_around
from .claims import Claim, Quantity
from .plan_file import plan_of
from .record import loaded
from .submission import Submission

#: No machine has more GPUs, or nodes: as many as a job spec can have.
MOST_GPUS: Final = 2**20
#: Where flags are located.
FLAGS: Final = "<flags>"


class Degree(NamedTuple):
    """A degree of parallelism, as one document has it; the least `rank` counts."""

    rank: int
    name: str
    value: int | None


#: Ranks of degrees. What rules a degree out goes before what sets one: arguments, the job's pins, a
#: config, the program's Python. Where the Python makes one all the same, that goes first.
MADE_ALL_THE_SAME, RULED_OUT, OF_ARGUMENTS, OF_JOB, OF_CONFIG, OF_PYTHON = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The machine by what the submission has of it; None where no document has it."""

    claims: tuple[Claim, ...]
    beyond: tuple[Claim, ...] = ()  #: those that no machine has, which count nowhere
    gpus: int | None
    nodes: int | None
    gpus_per_node: int | None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1  #: ring context parallelism or Ulysses
    expert: int = 1
    divided: bool = False  #: whether an option of a program that isn't known may divide the model

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one replica: tensor × pipeline × context."""
        return self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int | None:
        """The model's replicas.

        None where the GPUs or their division are unknown, or the GPUs are no multiple of a
        replica's.
        """
        if not self.gpus or self.divided or self.gpus % self.model_parallel:
            return None
        return self.gpus // self.model_parallel

    @property
    def source(self) -> Claim | None:
        """The first claim on the first quantity that has one."""
        claims = chain.from_iterable(map(self.claims_on, get_args(Quantity)))
        return next(claims, None)

    def claims_on(self, quantity: Quantity) -> tuple[Claim, ...]:
        """Every claim on a quantity, in the order of trust."""
        return tuple(claim for claim in self.claims if claim.quantity == quantity)


@lru_cache(maxsize=4)
def world_of(submission: Submission) -> World:
    """Return the world of a submission.

    The command line goes before the job spec, which goes before scripts and configs.
    """
    of_documents = sorted(_claims(submission), key=lambda claim: claim.trust)
    every = (*_context_claims(submission), *of_documents)
    claims = tuple(claim for claim in every if claim.value <= MOST_GPUS)
    beyond = tuple(claim for claim in every if claim.value > MOST_GPUS)

    def first(quantity: Quantity) -> int | None:
        return next((claim.value for claim in claims if claim.quantity == quantity), None)

    started = {claim.value for claim in claims if claim.quantity == "processes"}
    per_node, nodes = first("GPUs per node"), first("nodes")
    gpus = first("GPUs")
    if not gpus and len(started) == 1:
        [gpus] = started
    # A script may prepare data on one GPU before it trains on eight: which of several numbers of
    # processes is meant can't be known.
    if not gpus and len(started) <= 1 and nodes and per_node:
        gpus = nodes * per_node
    if not gpus or gpus > MOST_GPUS:
        gpus = None

    return World(
        claims=claims,
        beyond=beyond,
        gpus=gpus,
        nodes=nodes,
        gpus_per_node=per_node,
        divided=_is_divided(submission),
        **_degrees(submission),
    )


def cluster_of(submission: Submission) -> Cluster | None:
    """The machines: those that flags or the job name, else those of the plan beside the files.

    A plan's count where no document has another number of GPUs on a node.
    """
    planned = submission.planned
    if submission.cluster is not None or planned is None:
        return submission.cluster
    fits = world_of(submission).gpus_per_node in (None, planned.cluster.accelerators_per_node)
    return planned.cluster if fits else None


def _claims(submission: Submission) -> Iterator[Claim]:
    """What documents claim, in no order."""
    for job in submission.services:
        yield from job.claims()
    readers = (reader for record in submission.programs for reader in record.claims)
    for reader in readers:
        if reader.when(submission):
            yield from loaded(reader.function)(submission)


def _context_claims(submission: Submission) -> Iterator[Claim]:
    """What flags claim, and the job spec."""
    context, job, cluster = submission.context, submission.job, submission.cluster

    if context.gpus is not None:
        flag = f"--gpus {context.gpus}"
        yield Claim("GPUs", context.gpus, Location(path=FLAGS, flag=flag), flag)
    if context.gpus_per_node is not None:
        flag = f"--gpus-per-node {context.gpus_per_node}"
        yield Claim("GPUs per node", context.gpus_per_node, Location(path=FLAGS, flag=flag), flag)

    if job is not None:
        where = job.locate("/gpus" if "/gpus" in job.origin.locations else "/nodes")
        yield Claim("GPUs", job.gpus, where, "the job spec")
        yield Claim("nodes", job.nodes, where, "the job spec")

    if cluster is not None:
        gpus = cluster.accelerators_per_node
        where = Location(path=FLAGS, flag=f"--cluster {cluster.name}")
        yield Claim("GPUs per node", gpus, where, f"{gpus} on a node of {cluster.name}")


def _is_divided(submission: Submission) -> bool:
    """Return whether a program may divide the model by something that isn't known."""
    return any(
        record.divides.when(submission) and loaded(record.divides.function)(submission)
        for record in submission.programs
        if record.divides is not None
    )


def _degrees(submission: Submission) -> dict[str, int]:
    """Return the degrees of parallelism.

    They are the program's arguments, else the job's pins, else those of configs.
    """
    every = list(_stated(submission))
    has_arguments = any(degree.rank == OF_ARGUMENTS for degree in every)
    if submission.job is not None and not has_arguments:
        pins = submission.job.pins
        names = ("tensor", "pipeline", "context", "expert")
        every += [Degree(OF_JOB, name, getattr(pins, name)) for name in names]

    degrees: dict[str, int] = {}
    for degree in sorted(every, key=lambda degree: degree.rank):
        if degree.value is not None and 0 < degree.value <= MOST_GPUS:
            degrees.setdefault(degree.name, degree.value)
    return degrees


def _stated(submission: Submission) -> Iterator[Degree]:
    """The degrees that documents have, in no order."""
    readers = (reader for record in submission.programs for reader in record.degrees)
    for reader in readers:
        if reader.when(submission):
            yield from loaded(reader.function)(submission)


def gpus_of(plan: Path) -> tuple[int | None, int | None]:
    """The GPUs and nodes of a plan's job; None where it has no such number."""
    job = plan_of(text_around(plan, plan.parent)).get("job")
    if not isinstance(job, dict):
        return None, None
    return _count_or_none(job.get("gpus")), _count_or_none(job.get("nodes"))


def _count_or_none(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_GPUS else None


def gpus_planned_otherwise(submission: Submission) -> int | None:
    """The GPUs of the plan beside files that have others; None where that isn't known.

    A spec, or a number that a user gives, says what is meant.
    """
    context = submission.context
    is_said = context.job or context.gpus or submission.job is not None
    if is_said or len(submission.plan_files) != 1 or not submission.launches:
        return None
    planned, _ = gpus_of(submission.plan_files[0])
    return planned if world_of(submission).gpus not in (None, planned) else None
