"""What launch lines and files of hosts say of the GPUs, and of how a program divides them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from ...findings import Location
from ...patterns import lazy_pattern
from ...submission.claims import Claim, Quantity, Trust
from ...submission.launches import Launch
from ...submission.submission import Submission
from ...submission.world import MADE_ALL_THE_SAME, OF_PYTHON, Degree
from ...text.hostfile import Hostfile
from ...text.options import Options
from ...text.wording import counted
from ..deepspeed.submission import used_config
from .launcher_call import NODES, PER_NODE, LauncherCall, meets_itself
from .own_options import has_unknown_stages, pipeline_stages
from .per_machine import processes_of_each_machine
from .settings import Settings, settings_of

#: Options of launchers that set a quantity, by program.
_COUNTS: Final[tuple[tuple[dict[str, str], Quantity], ...]] = (
    (NODES, "nodes"),
    (PER_NODE, "GPUs per node"),
)
#: As programs name such options: `--pipeline-model-parallel-size`, `--model_parallel_size`,
#: `--pp-size`, `--tp`.
_DIVIDES: Final = lazy_pattern(
    r"--(?:(?:tensor|pipeline|pipe|sequence|context|model|tp|pp|cp|sp|mp)"
    r"-(?:model-)?(?:parallel|size|degree|stages)"
    r"|(?:tp|pp|cp|sp)(?:=|$))"
)


def claims_of_hosts(submission: Submission) -> Iterator[Claim]:
    """The hosts and slots of each file of hosts that has slots in every line."""
    for hostfile in submission.of(Hostfile):
        slots = [entry.slots for entry in hostfile.entries if entry.slots is not None]
        if slots and len(slots) == len(hostfile.entries):
            where = Location(path=hostfile.path)
            yield Claim("nodes", len(slots), where, counted(len(slots), "host"), Trust.HOSTS)
            yield Claim("GPUs", sum(slots), where, counted(sum(slots), "slot"), Trust.HOSTS)


def claims_of_lines(submission: Submission) -> Iterator[Claim]:
    """Nodes, GPUs and processes that launch lines set themselves."""
    alone = not submission.has("hostfile")
    for script in submission.scripts:
        of_launches = [
            (launch, [*_claims(launch, submission, Trust.SCRIPT, alone=alone)])
            for launch in script.launches
            if not _starts_once_a_task(launch, script.directives)
        ]
        yield from _of_every_branch(of_launches)
    for job in submission.services:
        # What trains by itself in each pod or on each node says nothing of the others.
        joined = [launch for launch in job.launches if not any(map(meets_itself, launch.calls))]
        for claim in chain.from_iterable(
            _claims(launch, submission, Trust.COMMAND, alone=False) for launch in joined
        ):
            if not (job.has_slots and claim.quantity == "processes"):
                yield claim


def _of_every_branch(of_launches: Sequence[tuple[Launch, list[Claim]]]) -> Iterator[Claim]:
    """The claims of a script's launches, but for those in branches that others contradict.

    Which branch a run takes isn't known: one may be for a single node, say.
    """
    numbers = [
        {claim.quantity: claim.value for claim in claims_of_one} for _, claims_of_one in of_launches
    ]
    for launch, claims_of_one in of_launches:
        is_in_branch = launch.calls[0].command.guarded
        for claim in claims_of_one:
            if not is_in_branch or len({each.get(claim.quantity) for each in numbers}) == 1:
                yield claim


def _claims(
    launch: Launch, submission: Submission, trust: Trust, *, alone: bool
) -> Iterator[Claim]:
    """The claims of one line. `alone`: nothing else runs it on several nodes."""
    settings = settings_of(launch)
    if settings is not None:
        yield from _claims_of_front_end(settings, trust)
    for index, call in enumerate(launch.calls):
        line = LauncherCall(**vars(call), launch=launch, submission=submission)
        is_on_some_nodes = any(
            outer.program == "srun" and outer.has("--nodelist") for outer in launch.calls[:index]
        )

        for options, quantity in _COUNTS:
            option = options.get(line.program, "")
            is_part = is_on_some_nodes and quantity == "nodes"
            count = line.integer(option)
            if count and not line.is_argument(option) and not is_part:
                text = f"{line.program} {option} {count.value}"
                yield Claim(quantity, count.value, count.where, text, trust)

        total = line.argument("--num_processes") if line.program == "accelerate" else None
        each = processes_of_each_machine(line) if total is not None else None
        if total is not None and each is not None:
            text = f"{line.program} {total.name} {total.option.values[0].raw}"
            yield Claim("GPUs per node", each, total.where, text, trust)

        processes = line.processes(outermost=alone and index == 0 and not line.opaque)
        if processes is not None:
            number, text = processes
            yield Claim("processes", number, line.where, f"{line.program} {text}", trust)


def _claims_of_front_end(settings: Settings, trust: Trust) -> Iterator[Claim]:
    """What the settings of a front end's launch say of GPUs and processes."""
    known_settings = settings.front_end.settings
    if "per_node" in known_settings:
        nodes, each = settings.get("nodes"), settings.get("per_node")
        if each is not None and each.number:
            where = each.where or settings.place
            yield Claim("GPUs per node", each.number, where, str(each), trust)
            if nodes is not None and nodes.number:
                processes = nodes.number * each.number
                yield Claim("processes", processes, where, f"{nodes} × {each}", trust)
    if "processes" in known_settings:
        every = settings.get("processes")
        if every is not None and every.number:
            where = every.where or settings.place
            yield Claim("processes", every.number, where, str(every), trust)


def _starts_once_a_task(launch: Launch, directives: Options) -> bool:
    """Whether srun starts torchrun once for each of a node's tasks, which torchrun takes for nodes:
    its processes are those of a task.
    """
    srun, torchrun = launch.call("srun"), launch.call("torchrun")
    nodes = torchrun.options.integer("--nnodes") if torchrun is not None else None
    if srun is None or nodes is None:
        return False

    def asked(name: str) -> int | None:
        return (srun.options if srun.options.get(name) else directives).integer(name)

    hosts, tasks = asked("--nodes") or 1, asked("--ntasks")
    tasks_per_node = asked("--ntasks-per-node")
    if tasks is None and tasks_per_node is not None:
        tasks = hosts * tasks_per_node
    return tasks is not None and nodes == tasks and tasks != hosts


def is_divided(submission: Submission) -> bool:
    """Return whether a program may divide the model.

    An option of its launch line does so, or pipeline stages whose number isn't known.
    """
    understood = {
        id(getattr(document, "launch", None))
        for document in submission.documents
        if getattr(document, "says_division", False)
    }
    words = (
        word.raw
        for launch in submission.launches
        if id(launch) not in understood
        for word in launch.arguments
    )
    divides = any(_DIVIDES.match(word.replace("_", "-")) for word in words)
    return divides or any(map(has_unknown_stages, submission.launches))


def degrees_of(submission: Submission) -> Iterator[Degree]:
    """The pipeline stages that programs with DeepSpeed's engine make."""
    config = used_config(submission)
    if config is None:
        return

    rank = MADE_ALL_THE_SAME if config.consumer == "huggingface" else OF_PYTHON
    for launch in submission.launches:
        yield Degree(rank, "pipeline", pipeline_stages(launch))
