"""The start of ranks: by one launcher, or by none and variables that say which rank each is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ....dataclass import dataclass
from ....findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ....rules.violations import deepspeed_now
from ...references import LIGHTNING_CONFIG
from ...slurm.request import LAUNCHERS
from ...subjects import launcher_calls, steps, subject
from ...submission import Submission, used_config
from ...world import world_of
from ..launch_line import Call, Launch
from ..launcher_call import NODES, LauncherCall
from ..options import PROGRAMS
from ..program_options import program_of, tells

#: Options of mpirun that put a number of processes on each node, or name the nodes.
_SPREAD: Final = ("--npernode", "--pernode", "--map-by", "--ppn")
#: Options of the number of processes: of all, and on each node.
_TOTAL: Final = {"srun": "--ntasks", "mpirun": "--np"}
_PER_NODE: Final = {"srun": ("--ntasks-per-node",), "mpirun": ("--npernode", "--ppn")}
_RANKS: Final = {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus", "accelerate": "--num_processes"}
#: Arguments of a training program that say that DeepSpeed or Megatron trains.
TRAINING: Final = {"--deepspeed", "--deepspeed_config", "--deepspeed-config", "--tensor-model-parallel-size"}
_NEEDED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FROM: Final = {
    "RANK": "RANK=$SLURM_PROCID",
    "WORLD_SIZE": "WORLD_SIZE=$SLURM_NTASKS",
    "LOCAL_RANK": "LOCAL_RANK=$SLURM_LOCALID",
    "MASTER_ADDR": 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
    "MASTER_PORT": "MASTER_PORT=29500",
}
_INIT: Final = "comm/comm.py:889, init_distributed"


@launcher_calls.rule("LNCH020", ERROR, "launcher", deepspeed_now("launcher/launch.py:236: each starts its own ranks"))
def one_launcher_starts_the_ranks(call: LauncherCall) -> Violations:
    """One launcher starts the ranks: none starts another, and it is started once on each node.
    Prevents: can't open file 'deepspeed'; or N × N processes on one port.
    Fix: use one launcher"""
    launch, index = call.launch, call.launch.calls.index(call.call)
    outers, after = launch.calls[:index], launch.calls[index + 1 :]
    inner = next(((each.program, each.word) for each in after if each.program in LAUNCHERS), None)
    if launch.program is not None and not after:  # which may be a launcher as well, by its file or module
        name = PurePath(launch.program.value or "").name
        name = PROGRAMS["other names"].get(name, name)
        inner = (name, launch.program) if name in LAUNCHERS else None
    if inner is not None:
        message = f"{call.program} starts {inner[0]}, and each of them starts a rank for every GPU"
        yield Violation(launch.script.locate(inner[1]), message, f"leave {call.program} out")
    if call.call.command.shell is None and not any(outer.program in LAUNCHERS for outer in outers):
        for outer in outers:
            yield from _many_on_a_node(call, outer)


def _many_on_a_node(own: LauncherCall, outer: Call) -> Violations:
    """More launchers than nodes, by mpirun's or srun's own numbers; SLM001 reports those of batch scripts."""
    if outer.program not in _TOTAL or outer.options.opaque or (outer.program == "srun" and own.shell.directives):
        return
    if outer.options.integer(_TOTAL[outer.program]) == 1:  # however many may be on a node
        return
    name, nodes = _TOTAL[outer.program], _nodes(outer, own)
    for per_node in _PER_NODE[outer.program]:
        if (outer.options.integer(per_node) or 0) > 1:
            name, nodes = per_node, 1
    option, total = outer.options.get(name), outer.options.integer(name)
    if option is not None and total is not None and nodes is not None and total > nodes:
        written = f"{outer.program} {option.written.raw.partition('=')[0]}={outer.options.text(name)}"
        message = f"{written} starts {own.program} {total} times, and each starts a rank for every GPU"
        hint = f"use {outer.program} with one process per node, or leave {own.program} out"
        yield Violation(own.shell.locate(option.written), message, hint)


def _nodes(outer: Call, own: LauncherCall) -> int | None:
    """The nodes that the outer call may be for; None where that can't be known."""
    if outer.program == "srun" and outer.options.has("--nodes"):
        return outer.options.integer("--nodes")
    if outer.program == "mpirun" and any(outer.options.has(name) for name in _SPREAD):
        return None
    if own.has(NODES[own.program]):
        return own.options.integer(NODES[own.program])
    if own.opaque or own.has("--no_ssh"):
        ranks = own.options.integer(_RANKS[own.program])
        # As many launchers as ranks are a slip.
        return 1 if ranks is not None and ranks == outer.options.integer(_TOTAL[outer.program]) else None
    return 1


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A program with DeepSpeed or Megatron that srun, mpirun or python alone starts, though it is for several ranks."""

    submission: Submission
    launch: Launch
    program: str  #: that starts the ranks: srun, mpirun or python
    where: Location
    number: int
    has_image: bool = False  #: an image's entry point may export more

    @property
    def variables(self) -> set[str]:
        """Those that each rank gets."""
        return set(self.launch.environment)

    @property
    def certain(self) -> bool:
        """True where srun starts DeepSpeed in the node's own Python, and nothing else may find out its rank."""
        names = _training_arguments(self.launch)
        asks = self.program == "srun" and not self.has_image and any("deepspeed" in name for name in names)
        return asks and not _finds_out_itself(self.launch) and not tells("MPI", self.launch.script.text.path)


@subject("launch script")
def _ranks(submission: Submission) -> Iterator[_Ranks]:
    for step in steps(submission):
        number = (step.tasks or 1) * (step.nodes or 1)
        parallel = submission.configs or submission.megatron or _training_arguments(step.launch)
        if step.starts_python and number > 1 and parallel and LIGHTNING_CONFIG not in step.launch.environment:
            image = step.srun.has("--container-image") or step.block.has("--container-image")
            yield _Ranks(submission, step.launch, "srun", step.where, number, has_image=image)
    for launch, outer in _bare(submission):
        where, number = launch.script.locate(outer.word), outer.options.integer("--np") or 1
        yield _Ranks(submission, launch, outer.program, where, number)


def _bare(submission: Submission) -> Iterator[tuple[Launch, Call]]:
    """Lines that start a program with DeepSpeed by python or mpirun alone, though it is for several ranks."""
    scripts = {id(script.shell) for script in submission.scripts}
    # Whether anything here may start another script, or start ranks otherwise than by its own launch lines.
    starts = any(launch.program and launch.program.raw.endswith(".sh") for launch in submission.launches)
    starts = starts or any(call.program != "python" for launch in submission.launches for call in launch.calls)
    starts = starts or bool(submission.azureml_jobs or submission.on_clusters)
    for launch in submission.launches:
        outer, programs = launch.calls[0], [call.program for call in launch.calls]
        known = {"RANK", "WORLD_SIZE"} & set(launch.environment) or not _training_arguments(launch)
        if id(launch.script) not in scripts or known or programs[-1] != "python" or _finds_out_itself(launch):
            continue
        if programs == ["python"]:
            once = outer.command.shell is None and not outer.command.guarded
            if once and (world_of(submission).gpus or 1) > 1 and not starts:
                yield launch, outer
        elif outer.program == "mpirun" and (outer.options.integer("--np") or 1) > 1:
            yield launch, outer


def _training_arguments(launch: Launch) -> set[str]:
    """The training program's own arguments that ask for DeepSpeed or Megatron."""
    return {word.prefix.partition("=")[0] for word in launch.arguments} & TRAINING


def _finds_out_itself(launch: Launch) -> bool:
    """Return whether the program or Python near it, where that can be found, reads the variables of Slurm or MPI, or
    sets its own."""
    found = program_of(launch)
    return found is not None and tells("ranks", str(found))


@_ranks.rule("LNCH014", ERROR, "init", deepspeed_now(f"{_INIT}: else the ranks are asked of mpi4py"))
def ranks_know_who_they_are(ranks: _Ranks) -> Violations:
    """Ranks get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from a launcher, or from the line that starts them.
    Prevents: ModuleNotFoundError: No module named 'mpi4py'. A note where the program may set them itself.
    Fix: export them from Slurm's variables"""
    missing = [name for name in _NEEDED if name not in ranks.variables]
    program, severity = ranks.launch.program, WARNING
    if ranks.program == "mpirun":  # which works where mpi4py is installed
        message = "mpirun starts the ranks without RANK and WORLD_SIZE: DeepSpeed asks mpi4py for them"
        hint, severity = "install mpi4py, or start them by deepspeed --launcher openmpi or torchrun", NOTE
    elif ranks.program == "python":
        message = f"no launcher starts this: one process, and the job has {world_of(ranks.submission).gpus} GPUs"
        hint = f"write deepspeed {program.raw} ..." if program else "start it by deepspeed or torchrun"
    elif missing:
        message = f"srun starts the ranks without {', '.join(missing)}, by which DeepSpeed and torch find one another"
        hint = f"write srun bash -c 'export {_FROM[missing[0]]}; ...', in single quotes, or srun torchrun"
        severity = ERROR if "RANK" in ranks.variables or ranks.certain else NOTE
    else:
        return
    yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule("BATCH008", ERROR, "init", deepspeed_now(f"{_INIT}; runtime/config.py, _batch_assertion"))
def world_is_not_one(ranks: _Ranks) -> Violations:
    """The batch is not computed for one rank in a job that has several.
    Prevents: Check batch related parameters: 64 != 1 * 8 * 1. A warning where the program may know, a note with mpirun.
    Fix: export RANK and WORLD_SIZE, or start a launcher"""
    config = used_config(ranks.submission)
    total = config.value("/train_batch_size") if config else None
    known = {"RANK", "WORLD_SIZE"} & ranks.variables or _finds_out_itself(ranks.launch)
    by_srun = ranks.program == "srun" and (config is not None or ranks.certain) and not known
    if by_srun or (ranks.program == "mpirun" and isinstance(total, int)):
        batch = f", and train_batch_size: {total} is a batch computed for one rank" if isinstance(total, int) else ""
        unless = " unless mpi4py finds more" if ranks.program == "mpirun" else ""
        start = f"{ranks.program} starts {ranks.number} ranks without RANK and WORLD_SIZE"
        message = f"{start}: each has a world size of 1{unless}{batch}"
        hint = "export RANK and WORLD_SIZE, or start torchrun or deepspeed"
        severity = NOTE if not by_srun else ERROR if ranks.certain and isinstance(total, int) else WARNING
        yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule("LNCH015", ERROR, "init", deepspeed_now("runtime/engine.py:1972, _do_args_sanity_check"))
def ranks_know_their_gpu(ranks: _Ranks) -> Violations:
    """Ranks that srun starts get LOCAL_RANK.
    Prevents: AssertionError: DeepSpeed requires the LOCAL_RANK environment variable.
    Fix: export LOCAL_RANK=$SLURM_LOCALID"""
    has, world = ranks.variables, {"RANK", "WORLD_SIZE"}
    if ranks.program == "srun" and "LOCAL_RANK" not in has and world <= has:
        message = "srun starts the ranks with RANK and WORLD_SIZE, but without LOCAL_RANK"
        yield Violation(ranks.where, message, f"export {_FROM['LOCAL_RANK']} where RANK is exported")
