"""Rules on how ranks are started: by a launcher, or by variables that say which rank each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ...programs.deepspeed.submission import configs_of, used_config
from ...programs.launching.launch_line import LAUNCHERS
from ...programs.launching.launcher_call import (
    NODES,
    PER_NODE,
    TOTALS,
    TRAINING,
    WITH_ENGINE,
    LauncherCall,
)
from ...programs.launching.ranks_read import needed_ranks, rank_variables
from ...programs.launching.references import LIGHTNING_CONFIG
from ...programs.launching.subjects import launcher_calls
from ...programs.launching.tables import PROGRAMS
from ...programs.python_around import tells
from ...programs.slurm.subjects import starts_alone, steps
from ...rules.violations import deepspeed_0_19_8, listed
from ...submission.launches import Call, Launch
from ...submission.repository import program_of
from ...submission.subjects import subject
from ...submission.submission import Submission
from ...submission.world import world_of
from ...text.shell.records import Word

#: Options of mpirun that put a number of processes on each node, or name the nodes.
_SPREAD: Final = ("--npernode", "--pernode", "--map-by", "--ppn")
#: Options of the number of processes: of all, and on each node.
_TOTAL: Final = {"srun": "--ntasks", "mpirun": "--np"}
_PER_NODE: Final = {"srun": ("--ntasks-per-node",), "mpirun": ("--npernode", "--ppn")}
_WORLD: Final = frozenset({"RANK", "WORLD_SIZE"})
_NEEDED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: What to export for each variable in a job of Slurm.
_EXPORTED: Final = {
    "RANK": "RANK=$SLURM_PROCID",
    "WORLD_SIZE": "WORLD_SIZE=$SLURM_NTASKS",
    "LOCAL_RANK": "LOCAL_RANK=$SLURM_LOCALID",
    "MASTER_ADDR": 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
    "MASTER_PORT": "MASTER_PORT=29500",
}
_INIT: Final = "comm/comm.py:889, init_distributed"


@launcher_calls.rule(
    "LNCH020",
    ERROR,
    "launcher",
    deepspeed_0_19_8("launcher/launch.py:236: each starts its own ranks"),
)
def one_launcher_starts_the_ranks(call: LauncherCall) -> Violations:
    """One launcher starts the ranks: none starts another, and it is started once on each node.
    Prevents: can't open file 'deepspeed'; or N × N processes on one port.
    Fix: use one launcher"""
    launch = call.launch
    index = [other.word for other in launch.calls].index(call.word)
    outer_calls, inner_calls = launch.calls[:index], launch.calls[index + 1 :]
    inner = _inner_launcher(launch, inner_calls)
    if inner is not None:
        message = (
            f"{call.program} starts {inner.name}, and each of them starts a rank for every GPU"
        )
        yield Violation(launch.script.locate(inner.word), message, f"leave {call.program} out")
    if call.command.shell is None and not any(each.program in LAUNCHERS for each in outer_calls):
        for outer in outer_calls:
            yield from _many_on_a_node(call, outer)


class _Launcher(NamedTuple):
    """A launcher's name, and the word of the line that starts it."""

    name: str
    word: Word


def _inner_launcher(launch: Launch, inner_calls: Sequence[Call]) -> _Launcher | None:
    """The launcher that one of a line's calls starts, if any."""
    if launch.program is not None and not inner_calls:
        # The program itself may be a launcher, by its file or module.
        name = PurePath(launch.program.value or "").name
        name = PROGRAMS["other names"].get(name, name)
        return _Launcher(name, launch.program) if name in LAUNCHERS else None
    for call in inner_calls:
        if call.program in LAUNCHERS:
            return _Launcher(call.program, call.word)
    return None


def _many_on_a_node(launcher: LauncherCall, outer: Call) -> Violations:
    """Find lines that start more launchers than there are nodes.

    The numbers are mpirun's or srun's own; SLM001 reports those of batch scripts.
    """
    is_by_directives = outer.program == "srun" and launcher.shell.directives
    if outer.program not in _TOTAL or outer.opaque or is_by_directives:
        return
    name = _TOTAL[outer.program]
    if outer.options.integer(name) == 1:  # one in all, whatever is said of a node
        return

    # More than one on a node is too much, however many nodes there are.
    nodes = _nodes(outer, launcher)
    for per_node in _PER_NODE[outer.program]:
        if (outer.options.integer(per_node) or 0) > 1:
            name, nodes = per_node, 1
    option, total = outer.options.get(name), outer.options.integer(name)
    if option is None or total is None or nodes is None or total <= nodes:
        return

    written_name = option.written.raw.partition("=")[0]
    written = f"{outer.program} {written_name}={outer.options.text(name)}"
    message = (
        f"{written} starts {launcher.program} {total} times, and each starts a rank for every GPU"
    )
    hint = f"use {outer.program} with one process per node, or leave {launcher.program} out"
    yield Violation(launcher.shell.locate(option.written), message, hint)


def _nodes(outer: Call, launcher: LauncherCall) -> int | None:
    """The number of nodes on which the outer call starts launchers; None where it isn't known."""
    if outer.program == "srun" and outer.has("--nodes"):
        return outer.options.integer("--nodes")
    if outer.program == "mpirun" and outer.has(*_SPREAD):
        return None
    nodes_option = NODES[launcher.program]
    if launcher.has(nodes_option):
        return launcher.options.integer(nodes_option)
    if not launcher.opaque and not launcher.has("--no_ssh"):
        return 1
    # Several nodes may have a launcher each; but as many launchers as ranks are a slip.
    ranks = launcher.options.integer((PER_NODE | TOTALS)[launcher.program])
    is_slip = ranks is not None and ranks == outer.options.integer(_TOTAL[outer.program])
    return 1 if is_slip else None


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A program for several ranks that no launcher starts.

    It uses DeepSpeed or Megatron, and srun, mpirun or python alone starts it; or it reads its rank
    from variables of a launcher's, and srun starts it.
    """

    submission: Submission
    launch: Launch
    program: str  #: that starts the ranks: srun, mpirun or python
    where: Location
    number: int
    has_image: bool = False  #: whether they start in a container, whose entry point may export more
    uses_engine: bool = True  #: whether it uses DeepSpeed or Megatron

    @property
    def variables(self) -> set[str]:
        """The names of the variables that each rank gets."""
        return set(self.launch.environment)

    @property
    def certain(self) -> bool:
        """Whether the ranks surely don't find one another.

        That is so where srun starts a program with DeepSpeed outside a container, and neither the
        program nor MPI may find out the rank.
        """
        if self.program != "srun" or self.has_image:
            return False
        if _training_arguments(self.launch).isdisjoint(WITH_ENGINE):
            return False
        may_find_out = _finds_out_itself(self.launch) or tells("MPI", self.launch.script.text.path)
        return not may_find_out


@subject("launch script")
def _ranks(submission: Submission) -> Iterator[_Ranks]:
    """The programs that srun, mpirun or python alone start for several ranks."""
    for step in steps(submission):
        number = (step.tasks or 1) * (step.nodes or 1)
        if number <= 1 or not step.starts_python or LIGHTNING_CONFIG in step.launch.environment:
            continue
        is_parallel = (
            configs_of(submission)
            or submission.has("Megatron arguments")
            or _training_arguments(step.launch)
        )
        has_image = step.srun.has("--container-image") or step.block.has("--container-image")
        is_alone = not is_parallel and not has_image and starts_alone(step)
        if is_parallel or is_alone:
            yield _Ranks(
                submission,
                step.launch,
                "srun",
                step.where,
                number,
                has_image=has_image,
                uses_engine=not is_alone,
            )

    yield from _ranks_without_slurm(submission)


def _ranks_without_slurm(submission: Submission) -> Iterator[_Ranks]:
    """The programs that mpirun or python alone start for several ranks."""
    own_scripts = {id(script.shell) for script in submission.scripts}
    starts_otherwise = _starts_otherwise(submission)
    for launch in submission.launches:
        if id(launch.script) not in own_scripts or not _lacks_its_rank(launch):
            continue
        outer, programs = launch.calls[0], [call.program for call in launch.calls]
        processes = outer.options.integer("--np") or 1
        if programs == ["python"]:
            is_once = outer.command.shell is None and not outer.command.guarded
            has_several_gpus = (world_of(submission).gpus or 1) > 1
            if is_once and has_several_gpus and not starts_otherwise:
                yield _Ranks(submission, launch, outer.program, outer.where, processes)
        elif outer.program == "mpirun" and programs[-1] == "python" and processes > 1:
            yield _Ranks(submission, launch, outer.program, outer.where, processes)


def _lacks_its_rank(launch: Launch) -> bool:
    """Whether a line starts a DeepSpeed program that nothing tells its rank."""
    is_told = launch.front_end or not _WORLD.isdisjoint(launch.environment)
    return not is_told and bool(_training_arguments(launch)) and not _finds_out_itself(launch)


def _starts_otherwise(submission: Submission) -> bool:
    """Whether the ranks may be started by something else than a launch line with python alone."""
    if submission.services:
        return True
    for launch in submission.launches:
        if launch.program and launch.program.raw.endswith(".sh"):
            return True
        if any(call.program != "python" for call in launch.calls):
            return True
    return False


def _training_arguments(launch: Launch) -> set[str]:
    """The training program's own arguments that ask for DeepSpeed or Megatron."""
    return {word.prefix.partition("=")[0] for word in launch.arguments} & TRAINING


def _finds_out_itself(launch: Launch) -> bool:
    """Return whether a program finds out its rank by itself.

    It, or a Python file around it, reads the variables of Slurm or MPI, or sets its own.
    """
    program = program_of(launch)
    return program is not None and tells("ranks", str(program))


@_ranks.rule(
    "LNCH014", ERROR, "init", deepspeed_0_19_8(f"{_INIT}: else the ranks are asked of mpi4py")
)
def ranks_know_who_they_are(ranks: _Ranks) -> Violations:
    """Ranks get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from a launcher, or from the line
    that starts them.
    Prevents: ModuleNotFoundError: No module named 'mpi4py'. A note where the program may set them
    itself; a warning where each task may train alone.
    Fix: export them from Slurm's variables
    """
    missing = [name for name in _NEEDED if name not in ranks.variables]
    program, severity = ranks.launch.program, WARNING
    if not ranks.uses_engine:
        names = rank_variables(ranks.launch)
        needed = names & needed_ranks(ranks.launch)
        effect = "each fails" if needed else "each fails or trains alone"
        severity = ERROR if needed else WARNING
        message = (
            f"srun starts {ranks.number} tasks without {listed(sorted(needed or names))}, from "
            f"which the program takes its rank: {effect}"
        )
        hint = f"write srun bash -c 'export {_EXPORTED['RANK']}; ...', in single quotes, or srun "
        hint += "torchrun"
    elif ranks.program == "mpirun":  # with which the ranks start where mpi4py is installed
        message = (
            "mpirun starts the ranks without RANK and WORLD_SIZE: DeepSpeed asks mpi4py for them"
        )
        hint = "install mpi4py, or start them by deepspeed --launcher openmpi or torchrun"
        severity = NOTE
    elif ranks.program == "python":
        gpus = world_of(ranks.submission).gpus
        message = f"no launcher starts this: one process, and the job has {gpus} GPUs"
        hint = "start it by deepspeed or torchrun"
        if program:
            hint = f"write deepspeed {program.raw} ..."
    elif missing:
        message = (
            f"srun starts the ranks without {', '.join(missing)}, by which DeepSpeed and "
            "torch find one another"
        )
        export = f"export {_EXPORTED[missing[0]]}"
        hint = f"write srun bash -c '{export}; ...', in single quotes, or srun torchrun"
        severity = ERROR if "RANK" in ranks.variables or ranks.certain else NOTE
    else:
        return
    yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule(
    "BATCH008", ERROR, "init", deepspeed_0_19_8(f"{_INIT}; runtime/config.py, _batch_assertion")
)
def world_is_not_one(ranks: _Ranks) -> Violations:
    """The batch is not computed for one rank in a job that has several.
    Prevents: Check batch related parameters: 64 != 1 * 8 * 1. A warning where the program may know,
    a note with mpirun.
    Fix: export RANK and WORLD_SIZE, or start a launcher
    """
    config = used_config(ranks.submission)
    total = config.value("/train_batch_size") if config else None
    if not ranks.uses_engine:
        return
    has_total = isinstance(total, int)
    if ranks.program == "srun":
        are_told = not _WORLD.isdisjoint(ranks.variables) or _finds_out_itself(ranks.launch)
        if are_told or (config is None and not ranks.certain):
            return
        unless = ""
        severity = ERROR if ranks.certain and has_total else WARNING
    elif ranks.program == "mpirun" and has_total:
        unless = " unless mpi4py finds more"
        severity = NOTE
    else:
        return
    start = f"{ranks.program} starts {ranks.number} ranks without RANK and WORLD_SIZE"
    message = f"{start}: each has a world size of 1{unless}"
    if has_total:
        message += f", and train_batch_size: {total} is a batch computed for one rank"
    hint = "export RANK and WORLD_SIZE, or start torchrun or deepspeed"
    yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule(
    "LNCH015", ERROR, "init", deepspeed_0_19_8("runtime/engine.py:1972, _do_args_sanity_check")
)
def ranks_know_their_gpu(ranks: _Ranks) -> Violations:
    """Ranks that srun starts get LOCAL_RANK.
    Prevents: AssertionError: DeepSpeed requires the LOCAL_RANK environment variable.
    Fix: export LOCAL_RANK=$SLURM_LOCALID"""
    variables = ranks.variables
    if (
        ranks.uses_engine
        and ranks.program == "srun"
        and variables >= _WORLD
        and "LOCAL_RANK" not in variables
    ):
        message = "srun starts the ranks with RANK and WORLD_SIZE, but without LOCAL_RANK"
        hint = f"export {_EXPORTED['LOCAL_RANK']} where RANK is exported"
        yield Violation(ranks.where, message, hint)
