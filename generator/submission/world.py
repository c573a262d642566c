"""The GPUs of a submission, and how they are divided: every document that sets it, and what follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final, get_args

from ..dataclass import dataclass
from ..findings import Location
from ..programs.launching.launch_line import Launch
from ..programs.launching.launcher_call import NODES, PER_NODE, LauncherCall
from ..programs.launching.own_options import has_unknown_stages, pipeline_stages
from ..programs.launching.script import LaunchScript
from ..text.document import Claim, Quantity
from ..text.wording import counted
from .submission import Submission

#: No machine has more GPUs, or nodes: as many as a job spec can have.
MOST_GPUS: Final = 2**20
#: Where flags are located.
FLAGS: Final = "<flags>"
#: Options of launchers that set a quantity, by program.
_COUNTS: Final[tuple[tuple[dict[str, str], Quantity], ...]] = (
    (NODES, "nodes"),
    (PER_NODE, "GPUs per node"),
)
_MEGATRON_DEGREES: Final = (
    ("tensor", "--tensor-model-parallel-size"),
    ("pipeline", "--pipeline-model-parallel-size"),
    ("context", "--context-parallel-size"),
    ("context", "--ds-sequence-parallel-size"),
    ("expert", "--expert-model-parallel-size"),
)
#: As programs name such options: `--pipeline-model-parallel-size`, `--model_parallel_size`, `--pp-size`, `--tp`.
_DIVIDES: Final = re.compile(
    r"--(?:(?:tensor|pipeline|pipe|sequence|context|model|tp|pp|cp|sp|mp)-(?:model-)?(?:parallel|size|degree|stages)"
    r"|(?:tp|pp|cp|sp)(?:=|$))"
)
_DEEPSPEED_DEGREES: Final = (
    ("tensor", "/tensor_parallel/autotp_size"),
    ("tensor", "/tensor_parallel/tp/tp_size"),
    ("pipeline", "/pipeline/stages"),
    ("context", "/sequence_parallel_size"),
)


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
        """Model replicas; None where the GPUs or their division are unknown, or not a multiple of a replica's."""
        whole = self.gpus and not self.gpus % self.model_parallel and not self.divided
        return self.gpus // self.model_parallel if self.gpus and whole else None

    @property
    def source(self) -> Claim | None:
        return next(chain(*map(self.claims_on, get_args(Quantity))), None)

    def claims_on(self, quantity: Quantity) -> tuple[Claim, ...]:
        """Every claim on a quantity, in the order of trust."""
        return tuple(claim for claim in self.claims if claim.quantity == quantity)


@lru_cache(maxsize=4)
def world_of(submission: Submission) -> World:
    """The world of a submission: the command line goes before the job spec, which goes before scripts and configs."""
    made = tuple(_claims(submission))
    claims = tuple(claim for claim in made if claim.value <= MOST_GPUS)
    beyond = tuple(claim for claim in made if claim.value > MOST_GPUS)

    def first(quantity: Quantity) -> int | None:
        return next((claim.value for claim in claims if claim.quantity == quantity), None)

    # A script may prepare data on one GPU before it trains on eight: which line is meant can't be known.
    started = {claim.value for claim in claims if claim.quantity == "processes"}
    processes = started.pop() if len(started) == 1 else None
    per_node, nodes = first("GPUs per node"), first("nodes")
    gpus = (
        first("GPUs")
        or processes
        or (nodes * per_node if nodes and per_node and not started else None)
    )
    gpus = gpus if gpus and gpus <= MOST_GPUS else None
    return World(
        claims=claims,
        beyond=beyond,
        gpus=gpus,
        nodes=nodes,
        gpus_per_node=per_node,
        divided=_is_divided(submission),
        **_degrees(submission),
    )


def _claims(submission: Submission) -> Iterator[Claim]:
    yield from _context_claims(submission)
    for script in submission.scripts:
        yield from _sbatch_claims(script)
    for job in (*submission.azureml_jobs, *submission.on_clusters):
        yield from job.claims()
    for hostfile in submission.hostfiles:
        slots = [entry.slots for entry in hostfile.entries if entry.slots is not None]
        if slots and len(slots) == len(hostfile.entries):
            where = Location(path=hostfile.path)
            yield Claim("nodes", len(slots), where, counted(len(slots), "host"))
            yield Claim("GPUs", sum(slots), where, counted(sum(slots), "slot"))
    for launch in (launch for script in submission.scripts for launch in script.launches):
        yield from _launch_claims(launch, submission, alone=not submission.hostfiles)
    for launch in (
        launch
        for job in (*submission.azureml_jobs, *submission.on_clusters)
        for launch in job.launches
    ):
        yield from _launch_claims(launch, submission, alone=False)
    yield from _accelerate_claims(submission)


def _context_claims(submission: Submission) -> Iterator[Claim]:
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
        each = cluster.accelerators_per_node
        where = Location(path=FLAGS, flag=f"--cluster {cluster.name}")
        yield Claim("GPUs per node", each, where, f"{each} on a node of {cluster.name}")


def _sbatch_claims(script: LaunchScript) -> Iterator[Claim]:
    if not script.shell.directives:
        return
    from ..programs.slurm.request import Request  # here, to save start-up time without Slurm

    request = Request(shell=script.shell, options=script.sbatch, program="sbatch", block=script)
    nodes, written = request.nodes, request.argument("--nodes")
    each = request.gpus("--gpus-per-node") or request.gpus_per_node or request.gpus_of_tasks
    if nodes is not None and written:
        yield Claim("nodes", nodes, written.where, f"#SBATCH --nodes={nodes}")
    if each is not None:
        yield Claim(
            "GPUs per node", each.value, each.where, f"#SBATCH {each.name} ({each.value} a node)"
        )
        if nodes is not None:
            text = f"#SBATCH --nodes={nodes} × {each.value} GPUs a node"
            yield Claim("GPUs", nodes * each.value, each.where, text)


def _launch_claims(launch: Launch, submission: Submission, *, alone: bool) -> Iterator[Claim]:
    """Processes that a launch line starts, where it sets them itself. `alone`: no service runs it on several nodes."""
    for index, call in enumerate(launch.calls):
        line = LauncherCall(**vars(call), launch=launch, submission=submission)
        part = any(one.program == "srun" and one.has("--nodelist") for one in launch.calls[:index])
        for options, quantity in _COUNTS:
            option = options.get(line.program, "")
            known = not line.is_argument(option) and not (
                part and quantity == "nodes"
            )  # those of a step of some nodes
            if known and (found := line.integer(option)):
                yield Claim(
                    quantity, found.value, found.where, f"{line.program} {option} {found.value}"
                )
        if total := line.processes(outermost=alone and index == 0 and not line.opaque):
            yield Claim("processes", total[0], line.where, f"{line.program} {total[1]}")


def _accelerate_claims(submission: Submission) -> Iterator[Claim]:
    config = submission.used_accelerate_config
    calls = [
        call.options
        for launch in submission.launches
        for call in launch.calls
        if call.program == "accelerate"
    ]
    if config is None or (
        submission.launches and not calls
    ):  # another program reads it, and may set the counts itself
        return
    counts: tuple[tuple[str, int | None, Quantity], ...] = (
        ("num_processes", config.processes, "processes"),
        ("num_machines", config.integer("num_machines"), "nodes"),
    )
    for name, value, quantity in counts:
        overridden = any(
            options.opaque or options.has(f"--{name}") for options in calls
        )  # by the command line
        if value is not None and not overridden:
            yield Claim(quantity, value, config.locate(name), f"{name}: {value}")


def _is_divided(submission: Submission) -> bool:
    """Return whether a program may divide the model: by an option of its launch line, or stages that aren't known."""
    known = {id(arguments.launch) for arguments in submission.megatron}
    words = (
        word.raw
        for launch in submission.launches
        if id(launch) not in known
        for word in launch.arguments
    )
    divides = any(_DIVIDES.match(word.replace("_", "-")) for word in words)
    return divides or any(map(has_unknown_stages, submission.launches))


def _degrees(submission: Submission) -> dict[str, int]:
    """Degrees of parallelism, of the Megatron arguments, else of the job's pins, else of the DeepSpeed configs."""
    found: list[tuple[str, int | None]] = []
    for arguments in submission.megatron:
        found += [(name, arguments.integer(option)) for name, option in _MEGATRON_DEGREES]
    if not submission.megatron and submission.job is not None:
        pins = submission.job.pins
        found += [
            (name, getattr(pins, name)) for name in ("tensor", "pipeline", "context", "expert")
        ]
    if (config := submission.used_config) is not None:
        found += [(name, config.whole(pointer)) for name, pointer in _DEEPSPEED_DEGREES]
        if config.consumer == "huggingface":  # which has no pipeline
            found = [(name, value) for name, value in found if name != "pipeline"]
        found += [("pipeline", pipeline_stages(launch)) for launch in submission.launches]
    degrees: dict[str, int] = {}
    for name, value in found:
        if value is not None and 0 < value <= MOST_GPUS:
            degrees.setdefault(name, value)
    return degrees
