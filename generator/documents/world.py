"""How many GPUs a submission is for, and how they are divided: every document that says so, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from ..findings import Location
from .document import AzureMLJob, LaunchScript
from .links import used_accelerate_config, used_ds_config
from .shell.launch_line import Call, Launch
from .submission import Submission

Quantity = Literal["GPUs", "nodes", "GPUs per node", "processes"]

#: Where flags are located.
FLAGS: Final = "<flags>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One document's word for how many there are of something."""

    quantity: Quantity
    value: int
    where: Location
    words: str  #: what is written, as in `#SBATCH --nodes 16 × --gres gpu:8`


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The machine as the submission sees it; None where no document says."""

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
        """Model replicas; None where the GPUs are not known or are no whole number of replicas."""
        if self.gpus is None or self.gpus % self.model_parallel:
            return None
        return self.gpus // self.model_parallel

    def said(self, quantity: Quantity) -> tuple[Claim, ...]:
        """Every claim on a quantity, in the order of trust."""
        return tuple(claim for claim in self.claims if claim.quantity == quantity)


@lru_cache(maxsize=4)
def world_of(submission: Submission) -> World:
    """What is given on the command line goes before the job spec, which goes before scripts and configs."""
    claims = tuple(_claims(submission))

    def first(quantity: Quantity) -> int | None:
        return next((claim.value for claim in claims if claim.quantity == quantity), None)

    # A script may prepare data on one GPU before it trains on eight: which line is meant can't be told.
    started = {claim.value for claim in claims if claim.quantity == "processes"}
    processes = started.pop() if len(started) == 1 else None
    per_node, nodes = first("GPUs per node"), first("nodes")
    gpus = first("GPUs") or processes or (nodes * per_node if nodes and per_node and not started else None)
    degrees = _degrees(submission)
    return World(claims=claims, gpus=gpus, nodes=nodes, gpus_per_node=per_node, **degrees)


def _claims(submission: Submission) -> Iterator[Claim]:
    yield from _given_claims(submission)
    for script in submission.scripts:
        yield from _sbatch_claims(script)
    for job in submission.azureml_jobs:
        yield from _azureml_claims(job)
    for hostfile in submission.hostfiles:
        slots = [entry.slots for entry in hostfile.entries if entry.slots is not None]
        if slots and len(slots) == len(hostfile.entries):
            where = Location(path=hostfile.text.path)
            yield Claim(quantity="nodes", value=len(slots), where=where, words=f"{len(slots)} hosts")
            yield Claim(quantity="GPUs", value=sum(slots), where=where, words=f"{sum(slots)} slots")
    hosts = bool(submission.hostfiles)
    for script in submission.scripts:
        for launch in script.launches:
            yield from _launch_claims(launch, alone=not hosts)
    for job in submission.azureml_jobs:
        for launch in job.launches:
            yield from _launch_claims(launch, alone=False)
    yield from _accelerate_claims(submission)


def _given_claims(submission: Submission) -> Iterator[Claim]:
    given, job, cluster = submission.context, submission.job, submission.cluster
    flags = Location(path=FLAGS)
    if given.gpus is not None:
        yield Claim(quantity="GPUs", value=given.gpus, where=flags, words=f"--gpus {given.gpus}")
    if given.gpus_per_node is not None:
        words = f"--gpus-per-node {given.gpus_per_node}"
        yield Claim(quantity="GPUs per node", value=given.gpus_per_node, where=flags, words=words)
    if job is not None:
        where = job.origin.locate("/gpus" if "/gpus" in job.origin.locations else "/nodes")
        yield Claim(quantity="GPUs", value=job.gpus, where=where, words=f"the job's {job.gpus} GPUs")
        yield Claim(quantity="nodes", value=job.nodes, where=where, words=f"the job's {job.nodes} nodes")
    if cluster is not None:
        words = f"{cluster.accelerators_per_node} on a node of {cluster.name}"
        yield Claim(quantity="GPUs per node", value=cluster.accelerators_per_node, where=flags, words=words)


def _sbatch_claims(script: LaunchScript) -> Iterator[Claim]:
    options = script.sbatch
    nodes, per_node = options.integer("--nodes"), sbatch_gpus_per_node(script)
    if nodes is not None and (option := options.get("--nodes")):
        where = script.shell.locate(option.written)
        yield Claim(quantity="nodes", value=nodes, where=where, words=f"#SBATCH --nodes={nodes}")
    if per_node is not None:
        name, value = per_node
        option = options.get(name)
        where = script.shell.locate(option.written) if option else Location(path=script.path)
        yield Claim(quantity="GPUs per node", value=value, where=where, words=f"#SBATCH {name} ({value} a node)")
        if nodes is not None:
            words = f"#SBATCH --nodes={nodes} × {value} GPUs a node"
            yield Claim(quantity="GPUs", value=nodes * value, where=where, words=words)


def sbatch_gpus_per_node(script: LaunchScript) -> tuple[str, int] | None:
    """The option that sets the GPUs of a node, and how many it sets: `--gpus-per-node`, `--gres`, `--gpus-per-task`."""
    options = script.sbatch
    for name in ("--gpus-per-node", "--gres"):
        text = options.text(name)
        count = gpu_count(text, gres=name == "--gres") if text is not None else None
        if count is not None:
            return name, count
    tasks, text = options.integer("--ntasks-per-node"), options.text("--gpus-per-task")
    count = gpu_count(text, gres=False) if text is not None else None
    return ("--gpus-per-task", count * tasks) if count is not None and tasks is not None else None


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
        yield Claim(quantity="nodes", value=nodes, where=where, words=f"instance_count: {nodes}")
        if processes is not None and not (processes == 1 and job.runs("torchrun", "deepspeed", "accelerate")):
            words = f"instance_count: {nodes} × process_count_per_instance: {processes}"
            where = job.locate("distribution/process_count_per_instance")
            yield Claim(quantity="processes", value=nodes * processes, where=where, words=words)


def _launch_claims(launch: Launch, *, alone: bool) -> Iterator[Claim]:
    """Processes that a launch line starts, where its own words tell. `alone`: no service runs it on several nodes."""
    for index, call in enumerate(launch.calls):
        outermost = alone and index == 0 and not call.options.opaque
        for option, quantity in _COUNTS.get(call.program, ()):
            value, written = call.options.integer(option), call.options.get(option)
            if value is not None and written is not None:
                where = launch.script.locate(written.written)
                yield Claim(quantity=quantity, value=value, where=where, words=f"{call.program} {option} {value}")
        total = _processes(call, outermost=outermost)
        if total is not None:
            where = launch.script.locate(call.word)
            yield Claim(quantity="processes", value=total[0], where=where, words=total[1])


#: What launchers are told directly.
_COUNTS: Final[Mapping[str, tuple[tuple[str, Quantity], ...]]] = {
    "torchrun": (("--nnodes", "nodes"), ("--nproc-per-node", "GPUs per node")),
    "deepspeed": (("--num_nodes", "nodes"), ("--num_gpus", "GPUs per node")),
    "accelerate": (("--num_machines", "nodes"),),
}


def _processes(call: Call, *, outermost: bool) -> tuple[int, str] | None:
    """How many processes a launcher starts on all its nodes, and what says so.

    Source: torch/distributed/run.py @ 2.13 (`--nnodes` is 1:1 unless it is given), deepspeed/launcher/runner.py
    @ 0.19.8 (`--include` names hosts and slots), accelerate/commands/launch.py @ 1.15 (`--num_processes` is the total).
    """
    match call.program:
        case "torchrun":
            return _product(
                call, "--nnodes", "--nproc-per-node", one_node=outermost or call.options.has("--standalone")
            )
        case "deepspeed":
            slots = included_slots(call.options.text("--include") or "")
            if slots:
                return slots, f"deepspeed --include {call.options.text('--include')}"
            return _product(
                call, "--num_nodes", "--num_gpus", one_node=outermost and not call.options.has("--hostfile")
            )
        case "accelerate":
            total = call.options.integer("--num_processes")
            return None if total is None else (total, f"accelerate --num_processes {total}")
        case "mpirun":
            total = call.options.integer("--np")
            return None if total is None else (total, f"mpirun --np {total}")
    return None


def _product(call: Call, nodes_option: str, each_option: str, *, one_node: bool) -> tuple[int, str] | None:
    nodes, each = call.options.integer(nodes_option), call.options.integer(each_option)
    if each is None:
        return None
    if nodes is None and one_node and not call.options.has(nodes_option):
        return each, f"{call.program} {each_option} {each}"
    return None if nodes is None else (nodes * each, f"{call.program} {nodes_option} {nodes} × {each_option} {each}")


def included_slots(text: str) -> int | None:
    """The GPUs that DeepSpeed's `--include` names: 6 of `a:0,1,2,3@b:0,1`; None where a host has no list of slots."""
    count = 0
    for host in text.split("@"):
        _, colon, slots = host.partition(":")
        named = slots.split(",") if colon and slots else []
        if not named or not all(slot.strip().isdecimal() for slot in named):
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
            yield Claim(quantity=quantity, value=value, where=config.locate(name), words=f"{name}: {value}")


def _degrees(submission: Submission) -> dict[str, int]:
    """Degrees of parallelism, of the Megatron arguments, else of the job's pins, else of the DeepSpeed configs."""
    degrees: dict[str, int] = {}
    for arguments in submission.megatron:
        for name, option in _MEGATRON_DEGREES:
            value = arguments.integer(option)
            if value is not None and value > 0:
                degrees.setdefault(name, value)
    if not submission.megatron and submission.job is not None:
        pins = submission.job.pins
        pinned = {name: getattr(pins, name) for name in ("tensor", "pipeline", "context", "expert")}
        degrees |= {name: value for name, value in pinned.items() if value is not None}
    config = used_ds_config(submission)
    if config is not None:
        for name, pointer in _DEEPSPEED_DEGREES:
            degree = config.whole(pointer)
            if degree is not None and degree > 0:
                degrees.setdefault(name, degree)
    return degrees


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
