"""How many GPUs a submission is for, and how they are divided: every document that sets it, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from ..findings import Location
from .document import AzureMLJob, LaunchScript
from .links import used_accelerate_config, used_config
from .shell.launch_line import Call, Launch, Options
from .submission import Submission

Quantity = Literal["GPUs", "nodes", "GPUs per node", "processes"]

#: Where flags are located.
FLAGS: Final = "<flags>"


@dataclass(frozen=True, slots=True)
class Claim:
    """How many there are of something, by one document."""

    quantity: Quantity
    value: int
    where: Location
    text: str  #: what is written, as in `#SBATCH --nodes 16 × --gres gpu:8`


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The machine by what the submission has of it; None where no document has it."""

    claims: tuple[Claim, ...]
    gpus: int | None
    nodes: int | None
    gpus_per_node: int | None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1  #: ring context parallelism or Ulysses
    expert: int = 1

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one replica: tensor × pipeline × context."""
        return self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int | None:
        """Model replicas; None where the GPUs are unknown or not a multiple of a replica's."""
        return self.gpus // self.model_parallel if self.gpus and not self.gpus % self.model_parallel else None

    def claims_on(self, quantity: Quantity) -> tuple[Claim, ...]:
        """Every claim on a quantity, in the order of trust."""
        return tuple(claim for claim in self.claims if claim.quantity == quantity)


#: Options of launchers that set a quantity.
_COUNTS: Final[Mapping[str, tuple[tuple[str, Quantity], ...]]] = {
    "torchrun": (("--nnodes", "nodes"), ("--nproc-per-node", "GPUs per node")),
    "deepspeed": (("--num_nodes", "nodes"), ("--num_gpus", "GPUs per node")),
    "accelerate": (("--num_machines", "nodes"),),
}
#: Options of launchers that set how many processes they start in all.
_TOTALS: Final = {"accelerate": "--num_processes", "mpirun": "--np"}
_MEGATRON_DEGREES: Final = (
    ("tensor", "--tensor-model-parallel-size"),
    ("pipeline", "--pipeline-model-parallel-size"),
    ("context", "--context-parallel-size"),
    ("context", "--ds-sequence-parallel-size"),
    ("expert", "--expert-model-parallel-size"),
)
_DEEPSPEED_DEGREES: Final = (
    ("tensor", "/tensor_parallel/autotp_size"),
    ("tensor", "/tensor_parallel/tp/tp_size"),
    ("context", "/sequence_parallel_size"),
)


@lru_cache(maxsize=4)
def world_of(submission: Submission) -> World:
    """The world of a submission: the command line goes before the job spec, which goes before scripts and configs."""
    claims = tuple(_claims(submission))

    def first(quantity: Quantity) -> int | None:
        return next((claim.value for claim in claims if claim.quantity == quantity), None)

    # A script may prepare data on one GPU before it trains on eight: which line is meant can't be known.
    started = {claim.value for claim in claims if claim.quantity == "processes"}
    processes = started.pop() if len(started) == 1 else None
    per_node, nodes = first("GPUs per node"), first("nodes")
    gpus = first("GPUs") or processes or (nodes * per_node if nodes and per_node and not started else None)
    return World(claims=claims, gpus=gpus, nodes=nodes, gpus_per_node=per_node, **_degrees(submission))


def _claims(submission: Submission) -> Iterator[Claim]:
    yield from _context_claims(submission)
    for script in submission.scripts:
        yield from _sbatch_claims(script)
    for job in submission.azureml_jobs:
        yield from _azureml_claims(job)
    for hostfile in submission.hostfiles:
        slots = [entry.slots for entry in hostfile.entries if entry.slots is not None]
        if slots and len(slots) == len(hostfile.entries):
            where = Location(path=hostfile.path)
            yield Claim("nodes", len(slots), where, f"{len(slots)} hosts")
            yield Claim("GPUs", sum(slots), where, f"{sum(slots)} slots")
    for launch in (launch for script in submission.scripts for launch in script.launches):
        yield from _launch_claims(launch, alone=not submission.hostfiles)
    for launch in (launch for job in submission.azureml_jobs for launch in job.launches):
        yield from _launch_claims(launch, alone=False)
    yield from _accelerate_claims(submission)


def _context_claims(submission: Submission) -> Iterator[Claim]:
    context, job, cluster = submission.context, submission.job, submission.cluster
    flags = Location(path=FLAGS)
    if context.gpus is not None:
        yield Claim("GPUs", context.gpus, flags, f"--gpus {context.gpus}")
    if context.gpus_per_node is not None:
        yield Claim("GPUs per node", context.gpus_per_node, flags, f"--gpus-per-node {context.gpus_per_node}")
    if job is not None:
        where = job.origin.locate("/gpus" if "/gpus" in job.origin.locations else "/nodes")
        yield Claim("GPUs", job.gpus, where, f"the job's {job.gpus} GPUs")
        yield Claim("nodes", job.nodes, where, f"the job's {job.nodes} nodes")
    if cluster is not None:
        each = cluster.accelerators_per_node
        yield Claim("GPUs per node", each, flags, f"{each} on a node of {cluster.name}")


def _sbatch_claims(script: LaunchScript) -> Iterator[Claim]:
    options = script.sbatch
    nodes, written = options.integer("--nodes"), options.get("--nodes")
    if nodes is not None and written:
        yield Claim("nodes", nodes, script.shell.locate(written.written), f"#SBATCH --nodes={nodes}")
    for name, value in _sbatch_gpus_per_node(options):
        option = options.get(name)
        where = script.shell.locate(option.written) if option else Location(path=script.path)
        yield Claim("GPUs per node", value, where, f"#SBATCH {name} ({value} a node)")
        if nodes is not None:
            yield Claim("GPUs", nodes * value, where, f"#SBATCH --nodes={nodes} × {value} GPUs a node")


def _sbatch_gpus_per_node(options: Options) -> list[tuple[str, int]]:
    """The option that sets the GPUs of a node, and how many it sets; empty where none does."""
    tasks = options.integer("--ntasks-per-node")
    for name, times in (("--gpus-per-node", 1), ("--gres", 1), ("--gpus-per-task", tasks)):
        text = options.text(name)
        count = gpu_count(text, gres=name == "--gres") if text is not None else None
        if count is not None and times is not None:
            return [(name, count * times)]
    return []


def gpu_count(text: str, *, gres: bool) -> int | None:
    """The GPUs of `8`, `a100:8`, or in a gres list `gpu:a100:8,nvme:1`; None where it names none, or can't be read."""
    for item in text.split(","):
        parts = item.split("(")[0].split(":")
        if gres and parts[0] not in ("gpu", "gres/gpu"):
            continue
        last = parts[-1]
        if last.isascii() and last.isdigit() and len(last) < 8:
            return int(last)
        if gres:  # `gpu` alone, or `gpu:a100`, is one
            return 1
    return None


def _azureml_claims(job: AzureMLJob) -> Iterator[Claim]:
    nodes = job.count("resources/instance_count")
    processes = job.count("distribution/process_count_per_instance")
    if nodes is not None:
        where = job.locate("resources/instance_count")
        yield Claim("nodes", nodes, where, f"instance_count: {nodes}")
        if processes is not None and not (processes == 1 and job.runs("torchrun", "deepspeed", "accelerate")):
            text = f"instance_count: {nodes} × process_count_per_instance: {processes}"
            where = job.locate("distribution/process_count_per_instance")
            yield Claim("processes", nodes * processes, where, text)


def _launch_claims(launch: Launch, *, alone: bool) -> Iterator[Claim]:
    """Processes that a launch line starts, where it sets them itself. `alone`: no service runs it on several nodes."""
    for index, call in enumerate(launch.calls):
        for option, quantity in _COUNTS.get(call.program, ()):
            value, written = call.options.integer(option), call.options.get(option)
            if value is not None and written is not None:
                where = launch.script.locate(written.written)
                yield Claim(quantity, value, where, f"{call.program} {option} {value}")
        total = _processes(call, outermost=alone and index == 0 and not call.options.opaque)
        if total is not None:
            yield Claim("processes", total[0], launch.script.locate(call.word), f"{call.program} {total[1]}")


def _processes(call: Call, *, outermost: bool) -> tuple[int, str] | None:
    """How many processes a launcher starts on all its nodes, and the options that set it.

    Source: torch/distributed/run.py @ 2.13 (`--nnodes` is 1:1 unless it is given), deepspeed/launcher/runner.py
    @ 0.19.8 (`--include` names hosts and slots), accelerate/commands/launch.py @ 1.15 (`--num_processes` is the total).
    """
    options = call.options
    if call.program == "torchrun":
        return _product(options, "--nnodes", "--nproc-per-node", one_node=outermost or options.has("--standalone"))
    if call.program == "deepspeed":
        include = options.text("--include") or ""
        if slots := _included_slots(include):
            return slots, f"--include {include}"
        return _product(options, "--num_nodes", "--num_gpus", one_node=outermost and not options.has("--hostfile"))
    option = _TOTALS.get(call.program, "")
    total = options.integer(option)
    return None if total is None else (total, f"{option} {total}")


def _product(options: Options, nodes_option: str, each_option: str, *, one_node: bool) -> tuple[int, str] | None:
    nodes, each = options.integer(nodes_option), options.integer(each_option)
    if each is None:
        return None
    if nodes is None and one_node and not options.has(nodes_option):
        return each, f"{each_option} {each}"
    return None if nodes is None else (nodes * each, f"{nodes_option} {nodes} × {each_option} {each}")


def _included_slots(text: str) -> int | None:
    """The GPUs that DeepSpeed's `--include` names: 6 of `a:0,1,2,3@b:0,1`; None where a host has no list of slots."""
    count = 0
    for host in text.split("@"):
        named = host.partition(":")[2].split(",")
        if not all(slot.strip().isdecimal() for slot in named):
            return None
        count += len(set(named))
    return count


def _accelerate_claims(submission: Submission) -> Iterator[Claim]:
    config = used_accelerate_config(submission)
    if config is None:
        return
    counts: tuple[tuple[str, int | None, Quantity], ...] = (
        ("num_processes", config.processes, "processes"),
        ("num_machines", config.integer("num_machines"), "nodes"),
    )
    for name, value, quantity in counts:
        if value is not None:
            yield Claim(quantity, value, config.locate(name), f"{name}: {value}")


def _degrees(submission: Submission) -> dict[str, int]:
    """Degrees of parallelism, of the Megatron arguments, else of the job's pins, else of the DeepSpeed configs."""
    found: list[tuple[str, int | None]] = []
    for arguments in submission.megatron:
        found += [(name, arguments.integer(option)) for name, option in _MEGATRON_DEGREES]
    if not submission.megatron and submission.job is not None:
        pins = submission.job.pins
        found += [(name, getattr(pins, name)) for name in ("tensor", "pipeline", "context", "expert")]
    if (config := used_config(submission)) is not None:
        found += [(name, config.whole(pointer)) for name, pointer in _DEEPSPEED_DEGREES]
    degrees: dict[str, int] = {}
    for name, value in found:
        if value is not None and value > 0:
            degrees.setdefault(name, value)
    return degrees
