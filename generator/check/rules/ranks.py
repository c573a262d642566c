"""Rules on how ranks are started, and on the options of the program that they run.

Ranks are started by one launcher, or by none and variables that say which rank each is. Options are
checked where the repository has all of the program's parser.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise, takewhile
from pathlib import Path, PurePath
from typing import Final

from ...catalog.names import most_like
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
from ...programs.launching.own_options import own_options, slips
from ...programs.launching.references import LIGHTNING_CONFIG
from ...programs.launching.subjects import launcher_calls
from ...programs.launching.tables import PROGRAMS
from ...programs.megatron.parser import options_beside
from ...programs.python_around import tells
from ...programs.slurm.subjects import steps
from ...programs.trainer.training_arguments import gone_arguments, known_arguments
from ...rules.violations import deepspeed_now, derived, transformers
from ...submission.launches import Call, Launch
from ...submission.repository import (
    find_programs,
    program_of,
    program_path,
    program_text,
    programs_in,
)
from ...submission.script import LaunchScript
from ...submission.subjects import launches, scripts, subject
from ...submission.submission import Submission
from ...submission.world import world_of
from ...text.around import folders_above, is_there
from ...text.options import basename
from ...text.shell.follow import called, sourced
from ...text.shell.records import Command, Word
from ...text.slips import is_slip

#: Options of mpirun that put a number of processes on each node, or name the nodes.
_SPREAD: Final = ("--npernode", "--pernode", "--map-by", "--ppn")
#: Options of the number of processes: of all, and on each node.
_TOTAL: Final = {"srun": "--ntasks", "mpirun": "--np"}
_PER_NODE: Final = {"srun": ("--ntasks-per-node",), "mpirun": ("--npernode", "--ppn")}
_NEEDED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FROM: Final = {
    "RANK": "RANK=$SLURM_PROCID",
    "WORLD_SIZE": "WORLD_SIZE=$SLURM_NTASKS",
    "LOCAL_RANK": "LOCAL_RANK=$SLURM_LOCALID",
    "MASTER_ADDR": 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
    "MASTER_PORT": "MASTER_PORT=29500",
}
_INIT: Final = "comm/comm.py:889, init_distributed"
#: Fields of Seq2SeqTrainingArguments of its own. Source: src/transformers/training_args_seq2seq.py
#: @ 5.23
_OF_SEQUENCES: Final = (
    "sortish_sampler",
    "predict_with_generate",
    "generation_max_length",
    "generation_num_beams",
)
# of names of which one may be the other with a slip or two, as in `check.kinds`
_ALIKE: Final = 0.8
_OF_A_USER: Final = 3  # parts of a path such as `/home/me`; `/workspace` may hold anything
_MOST_BESIDE: Final = 300  #: programs of a folder whose names may be meant


@launcher_calls.rule(
    "LNCH020", ERROR, "launcher", deepspeed_now("launcher/launch.py:236: each starts its own ranks")
)
def one_launcher_starts_the_ranks(call: LauncherCall) -> Violations:
    """One launcher starts the ranks: none starts another, and it is started once on each node.
    Prevents: can't open file 'deepspeed'; or N × N processes on one port.
    Fix: use one launcher"""
    launch, index = call.launch, [each.word for each in call.launch.calls].index(call.word)
    outers, after = launch.calls[:index], launch.calls[index + 1 :]
    inner = next(((each.program, each.word) for each in after if each.program in LAUNCHERS), None)
    # which may be a launcher as well, by its file or module
    if launch.program is not None and not after:
        name = PurePath(launch.program.value or "").name
        name = PROGRAMS["other names"].get(name, name)
        inner = (name, launch.program) if name in LAUNCHERS else None
    if inner is not None:
        message = f"{call.program} starts {inner[0]}, and each of them starts a rank for every GPU"
        yield Violation(launch.script.locate(inner[1]), message, f"leave {call.program} out")
    if call.command.shell is None and not any(outer.program in LAUNCHERS for outer in outers):
        for outer in outers:
            yield from _many_on_a_node(call, outer)


def _many_on_a_node(own: LauncherCall, outer: Call) -> Violations:
    """Find lines that start more launchers than there are nodes.

    The numbers are mpirun's or srun's own; SLM001 reports those of batch scripts.
    """
    if (
        outer.program not in _TOTAL
        or outer.opaque
        or (outer.program == "srun" and own.shell.directives)
    ):
        return
    if outer.options.integer(_TOTAL[outer.program]) == 1:  # however many may be on a node
        return
    name, nodes = _TOTAL[outer.program], _nodes(outer, own)
    for per_node in _PER_NODE[outer.program]:
        if (outer.options.integer(per_node) or 0) > 1:
            name, nodes = per_node, 1
    option, total = outer.options.get(name), outer.options.integer(name)
    if option is not None and total is not None and nodes is not None and total > nodes:
        written = (
            f"{outer.program} {option.written.raw.partition('=')[0]}={outer.options.text(name)}"
        )
        message = (
            f"{written} starts {own.program} {total} times, and each starts a rank for every GPU"
        )
        hint = f"use {outer.program} with one process per node, or leave {own.program} out"
        yield Violation(own.shell.locate(option.written), message, hint)


def _nodes(outer: Call, own: LauncherCall) -> int | None:
    """The nodes that the outer call may be for; None where that can't be known."""
    if outer.program == "srun" and outer.has("--nodes"):
        return outer.options.integer("--nodes")
    if outer.program == "mpirun" and outer.has(*_SPREAD):
        return None
    if own.has(NODES[own.program]):
        return own.options.integer(NODES[own.program])
    if own.opaque or own.has("--no_ssh"):
        ranks = own.options.integer((PER_NODE | TOTALS)[own.program])
        # As many launchers as ranks are a slip.
        if ranks is not None and ranks == outer.options.integer(_TOTAL[outer.program]):
            return 1
        return None
    return 1


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A program for several ranks that no launcher starts.

    It uses DeepSpeed or Megatron, and srun, mpirun or python alone starts it.
    """

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
        """Whether the ranks surely don't find one another.

        True where srun starts DeepSpeed in the node's own Python, and nothing else may find out its
        rank.
        """
        names = _training_arguments(self.launch)
        asks = self.program == "srun" and not self.has_image and not names.isdisjoint(WITH_ENGINE)
        return (
            asks
            and not _finds_out_itself(self.launch)
            and not tells("MPI", self.launch.script.text.path)
        )


@subject("launch script")
def _ranks(submission: Submission) -> Iterator[_Ranks]:
    for step in steps(submission):
        number = (step.tasks or 1) * (step.nodes or 1)
        parallel = (
            configs_of(submission)
            or submission.has("Megatron arguments")
            or _training_arguments(step.launch)
        )
        if (
            step.starts_python
            and number > 1
            and parallel
            and LIGHTNING_CONFIG not in step.launch.environment
        ):
            image = step.srun.has("--container-image") or step.block.has("--container-image")
            yield _Ranks(submission, step.launch, "srun", step.where, number, has_image=image)
    for launch, outer in _bare(submission):
        number = outer.options.integer("--np") or 1
        yield _Ranks(submission, launch, outer.program, outer.where, number)


def _bare(submission: Submission) -> Iterator[tuple[Launch, Call]]:
    """Find lines that start a DeepSpeed program for several ranks without a launcher.

    Python or mpirun alone starts it.
    """
    scripts = {id(script.shell) for script in submission.scripts}
    # Whether anything here may start another script, or start ranks otherwise than by its own
    # launch lines.
    starts = any(
        launch.program and launch.program.raw.endswith(".sh") for launch in submission.launches
    )
    starts = starts or any(
        call.program != "python" for launch in submission.launches for call in launch.calls
    )
    starts = starts or bool(submission.services)
    for launch in submission.launches:
        outer, programs = launch.calls[0], [call.program for call in launch.calls]
        known = {"RANK", "WORLD_SIZE"} & set(launch.environment) or not _training_arguments(launch)
        if (
            id(launch.script) not in scripts
            or known
            or launch.front_end
            or programs[-1] != "python"
            or _finds_out_itself(launch)
        ):
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
    """Return whether a program finds out its rank by itself.

    It, or Python near it that can be found, reads the variables of Slurm or MPI, or sets its own.
    """
    found = program_of(launch)
    return found is not None and tells("ranks", str(found))


@_ranks.rule(
    "LNCH014", ERROR, "init", deepspeed_now(f"{_INIT}: else the ranks are asked of mpi4py")
)
def ranks_know_who_they_are(ranks: _Ranks) -> Violations:
    """Ranks get RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from a launcher, or from the line
    that starts them.
    Prevents: ModuleNotFoundError: No module named 'mpi4py'. A note where the program may set them
    itself.
    Fix: export them from Slurm's variables
    """
    missing = [name for name in _NEEDED if name not in ranks.variables]
    program, severity = ranks.launch.program, WARNING
    if ranks.program == "mpirun":  # which works where mpi4py is installed
        message = (
            "mpirun starts the ranks without RANK and WORLD_SIZE: DeepSpeed asks mpi4py for them"
        )
        hint = "install mpi4py, or start them by deepspeed --launcher openmpi or torchrun"
        severity = NOTE
    elif ranks.program == "python":
        message = (
            "no launcher starts this: one process, and the job has "
            f"{world_of(ranks.submission).gpus} GPUs"
        )
        hint = (
            f"write deepspeed {program.raw} ..." if program else "start it by deepspeed or torchrun"
        )
    elif missing:
        message = (
            f"srun starts the ranks without {', '.join(missing)}, by which DeepSpeed and "
            "torch find one another"
        )
        hint = (
            f"write srun bash -c 'export {_FROM[missing[0]]}; ...', in single "
            "quotes, or srun torchrun"
        )
        severity = ERROR if "RANK" in ranks.variables or ranks.certain else NOTE
    else:
        return
    yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule(
    "BATCH008", ERROR, "init", deepspeed_now(f"{_INIT}; runtime/config.py, _batch_assertion")
)
def world_is_not_one(ranks: _Ranks) -> Violations:
    """The batch is not computed for one rank in a job that has several.
    Prevents: Check batch related parameters: 64 != 1 * 8 * 1. A warning where the program may know,
    a note with mpirun.
    Fix: export RANK and WORLD_SIZE, or start a launcher
    """
    config = used_config(ranks.submission)
    total = config.value("/train_batch_size") if config else None
    known = {"RANK", "WORLD_SIZE"} & ranks.variables or _finds_out_itself(ranks.launch)
    by_srun = ranks.program == "srun" and (config is not None or ranks.certain) and not known
    if by_srun or (ranks.program == "mpirun" and isinstance(total, int)):
        batch = (
            f", and train_batch_size: {total} is a batch computed for one rank"
            if isinstance(total, int)
            else ""
        )
        unless = " unless mpi4py finds more" if ranks.program == "mpirun" else ""
        start = f"{ranks.program} starts {ranks.number} ranks without RANK and WORLD_SIZE"
        message = f"{start}: each has a world size of 1{unless}{batch}"
        hint = "export RANK and WORLD_SIZE, or start torchrun or deepspeed"
        severity = (
            NOTE if not by_srun else ERROR if ranks.certain and isinstance(total, int) else WARNING
        )
        yield Violation(ranks.where, message, hint, severity=severity)


@_ranks.rule(
    "LNCH015", ERROR, "init", deepspeed_now("runtime/engine.py:1972, _do_args_sanity_check")
)
def ranks_know_their_gpu(ranks: _Ranks) -> Violations:
    """Ranks that srun starts get LOCAL_RANK.
    Prevents: AssertionError: DeepSpeed requires the LOCAL_RANK environment variable.
    Fix: export LOCAL_RANK=$SLURM_LOCALID"""
    has, world = ranks.variables, {"RANK", "WORLD_SIZE"}
    if ranks.program == "srun" and "LOCAL_RANK" not in has and world <= has:
        message = "srun starts the ranks with RANK and WORLD_SIZE, but without LOCAL_RANK"
        yield Violation(
            ranks.where, message, f"export {_FROM['LOCAL_RANK']} where RANK is exported"
        )


@lru_cache(maxsize=1)
def _classes() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the fields of the classes of transformers that parsers make options of.

    Fields of older releases are among them.
    """
    fields = frozenset({*known_arguments(), *gone_arguments(), "local_rank", "generation_config"})
    return ("TrainingArguments", fields), ("Seq2SeqTrainingArguments", fields | {*_OF_SEQUENCES})


@launches.rule(
    "LNCH043", ERROR, "launcher", derived("Python: can't open file: No such file or directory")
)
def program_is_there(launch: Launch) -> Violations:
    """The program that a line starts is not a letter off one that is there.
    Prevents: python: can't open file 'trian.py': [Errno 2] No such file or directory. A note where
    its folder has other programs, and none of a like name.
    Fix: correct the program's path"""
    program, holder = program_path(launch), launch.script.text.path
    if launch.program is not None and program and launch.starts_module:
        yield from _module_is_there(launch, program)
    if launch.program is None or not program or not program.endswith(".py") or program_of(launch):
        return
    name, above = PurePath(program), list(folders_above(holder))
    places = [(folder / program).parent for folder in above]
    own = places if len(name.parts) > 1 and not name.is_absolute() else []
    # another machine's: its folder may be here
    if name.is_absolute() or launch.program.value is None:
        places += [
            *(folder / name.parent.name for folder in above),
            *(one for one in above if one.name == name.parent.name),
        ]
    beside = (
        path for place in places for path in programs_in(place, Path(holder).parent)[:_MOST_BESIDE]
    )
    near = next((path.name for path in beside if is_slip(name.name, path.name)), None)
    near = (near and str(name.with_name(near))) or _by_folder(name, holder)
    if near is not None:
        message = f"the program {program} is not there"
        yield Violation(launch.script.locate(launch.program), message, f"did you mean {near}?")
    elif (
        launch.program.value is not None
        and not any(one.words[0].value in _BRINGS for one in launch.script.commands if one.words)
        and any(programs_in(place, Path(holder).parent) for place in own)
    ):
        message = f"the program {program} is not there, and its folder is"
        hint = "correct the path, or add the program"
        yield Violation(launch.script.locate(launch.program), message, hint, severity=NOTE)


def _module_is_there(launch: Launch, module: str) -> Violations:
    """Judge the last name of a module whose package lies in a folder above the script."""
    holder, package = launch.script.text.path, PurePath(*module.split(".")[:-1])
    name = module.rpartition(".")[2]
    if launch.program is None or launch.program.value is None or not package.parts:
        return
    for place in (folder / package for folder in folders_above(holder)):
        modules = [path.stem for path in programs_in(place, Path(holder).parent)]
        if modules and not (name in modules or is_there(place / name)):
            near = next((one for one in modules[:_MOST_BESIDE] if is_slip(name, one)), None)
            if near is not None:
                hint = f"did you mean {'.'.join((*package.parts, near))}?"
                message = f"the module {module} is not there"
                yield Violation(launch.script.locate(launch.program), message, hint)
        if modules:
            return


_TESTED: Final = re.compile(r"(?<!\S)-[efrsx][ \t]+[\"']?([^\s\"';\]]+)")


@scripts.rule(
    "LNCH050", ERROR, "launcher", derived("bash, sbatch: FILE: No such file or directory")
)
def called_scripts_are_there(script: LaunchScript) -> Violations:
    """A script that another calls, sources or submits is not a letter off one that is there.
    Prevents: bash: trian.sh: No such file or directory; sbatch: error: Unable to open file.
    Fix: correct the script's path"""
    shell = script.shell
    brought = (word for one in shell.commands if _brings(one) for word in one.words[1:])
    there = {PurePath(text.path).name for _, text in shell.followed}
    there |= {PurePath(word.path or "").name for word in (*shell.written, *brought)}
    there |= {PurePath(name).name for name in _TESTED.findall(shell.text.content)}
    for command in shell.commands:
        word = _script_of(command)
        name = PurePath((word.path or "").lstrip("/")) if word is not None else PurePath()
        if word is None or not name.suffix or name.name in there:
            continue
        where = shell.locate(word)
        beside = _scripts_beside(name, where.path, anywhere=word.value != str(name))
        near = next((one for one in beside[:_MOST_BESIDE] if is_slip(name.name, one)), None)
        if near is not None and name.name not in beside:
            message = f"the script {word.path} is not there"
            yield Violation(where, message, f"did you mean {name.with_name(near)}?")


def _scripts_beside(name: PurePath, holder: str, *, anywhere: bool) -> list[str]:
    """The names of the scripts in the folder of one, as far as it is known."""
    above = list(folders_above(holder))
    places = [(folder / name).parent for folder in above]
    if anywhere:
        places += [folder / name.parent.name for folder in above]
    project, pattern = Path(holder).parent, f"*{name.suffix}"
    return [one.name for place in places for one in programs_in(place, project, pattern)]


def _brings(command: Command) -> bool:
    return bool(command.words) and command.words[0].value in _BRINGS


def _script_of(command: Command) -> Word | None:
    """The word that names a script which a command runs, reads or submits."""
    words = command.run
    if not words:
        return None
    if basename(words[0]) == "sbatch":
        scripts = (word for word in words[1:] if not word.raw.startswith("-"))
        return next((word for word in scripts if (word.path or "").endswith(_BATCH)), None)
    if (word := sourced(words)) is not None:
        return word
    at = called(words)
    return words[at] if at is not None else None


_DEEPEST: Final = 32  # parts of a program's path, each of which may be the slip
_BATCH: Final = (".sh", ".sbatch", ".slurm", ".job", ".bash")
#: Commands after which other files are there.
_BRINGS: Final = frozenset({"cd", "pushd", "git", "wget", "curl", "cp", "ln", "mv", "tar", "unzip"})


def _by_folder(program: PurePath, holder: str) -> str | None:
    """Return the path of a program that is there, by another name of one folder.

    The folder's name in `program` differs from the path's by a slip.
    """
    above = [] if program.is_absolute() else list(folders_above(holder))
    up = next((number for number, part in enumerate(program.parts) if part != ".."), 0)
    parts = program.parts[up:]
    if len(parts) > _DEEPEST:
        return None
    for number, name in enumerate(parts[:-1]):
        pattern = str(PurePath(*parts[:number], "*", *parts[number + 1 :]))
        for folder in (Path(os.path.normpath(one.joinpath(*program.parts[:up]))) for one in above):
            for path in programs_in(folder, folder, pattern)[:_MOST_BESIDE]:
                other = path.relative_to(folder)
                if is_slip(name, other.parts[number]):
                    return str(PurePath(*program.parts[:up], other))
    return None


def _passed_over(launch: Launch, found: Path, words: Mapping[Word, str]) -> Violations:
    """Return options that are probably slips of the program's own.

    Its parser may leave alone options that it lacks, so only likely slips are told.
    """
    trainers = dict(_classes())["Seq2SeqTrainingArguments"]
    if options_beside(found).parser is not None:  # Megatron's, which other rules judge
        return
    near = slips(
        found,
        [name for name in words.values() if name.lstrip("-").replace("-", "_") not in trainers],
    )
    for word, name in words.items():
        if name in near:
            message = f"{program_path(launch)} has no option {name}: it stops, or passes over it"
            yield Violation(launch.script.locate(word), message, f"did you mean {near[name]}?")


def _moves_away(launch: Launch) -> bool:
    """Return whether the script changes to a folder that can't be known.

    It is within an unknown one, as `$HERE/tasks/$NAME`, or of another project, as
    `/home/me/projects/other`. Programs there may have the same names.
    """
    moves = [
        one.words[1]
        for one in launch.script.commands
        if len(one.words) == 2 and one.words[0].value == "cd"
    ]
    if any(
        len(move.parts) > 2 and move.parts[0] is None and move.parts[-1] is None for move in moves
    ):
        return True
    above = [folder.name for folder in folders_above(launch.script.text.path)]
    paths = (
        PurePath(move.value or "").parts for move in moves if (move.value or "").startswith("/")
    )
    return any(
        len(path) > _OF_A_USER and not any(map(one.endswith, path))
        for path in paths
        for one in above[-1:]
    )


@launches.rule("LNCH048", ERROR, "parse", "Python's argparse: an option's value comes next")
def options_have_their_values(launch: Launch) -> Violations:
    """An option that a class of the program's gives a text or a number has a value behind it.
    Prevents: error: argument --model_name_or_path: expected one argument
    Fix: write the value
    """
    text = program_text(launch)
    if text is None or "HfArgumentParser" not in text:
        return
    for word, following in pairwise(launch.arguments):
        name = (word.value or "").removeprefix("--")
        is_bare = following.prefix.startswith("--") and (word.value or "").startswith("--")
        if not is_bare or not name.isidentifier():
            continue
        field = re.search(
            rf"^[ \t]+{name}[ \t]*:[ \t]*(?:Optional\[)?(?:str|int|float)\b", text, re.M
        )
        if field is not None:
            message = f"--{name} has no value: {following.prefix} is another option"
            yield Violation(launch.script.locate(word), message, f"write a value behind --{name}")


@launches.rule(
    "LNCH042",
    ERROR,
    "parse",
    transformers("src/transformers/hf_argparser.py:338") + "; Python's argparse",
)
def options_are_the_programs(launch: Launch) -> Violations:
    """Every option after the training program is one that its own parser has, where the repository
    has all of that.
    Prevents: error: unrecognized arguments: --saving_strategy steps; or: Some specified arguments
    are not used by the HfArgumentParser.
    Fix: correct the option's name
    """
    program, found = program_path(launch), program_of(launch)
    if found is None or _moves_away(launch):
        return
    read = [own_options(one, _classes()) for one in find_programs(program, launch.script.text.path)]
    known = [options for options in read if options is not None]
    # which of them is started isn't known
    options = frozenset[str]().union(*known) if len(known) == len(read) else None
    # Behind `--` alone argparse takes words as they are.
    given = takewhile(lambda word: word.value != "--", launch.arguments)
    words = {word: word.prefix.partition("=")[0] for word in given if word.prefix.startswith("--")}
    if options is None:
        yield from _passed_over(launch, found, words)
        return
    unknown = {name for name in words.values() if name not in options}
    unknown = {name for name in unknown if not any(one.startswith(name) for one in options)}
    wrong = {word: name for word, name in words.items() if name in unknown}
    meant = {name: most_like(name, tuple(sorted(options)), _ALIKE) for name in wrong.values()}
    # another program of the same name
    if 2 * sum(not meant[name] for name in wrong.values()) >= len(words):
        return
    for word, name in wrong.items():
        if meant[name]:
            message, hint = f"{program} has no option {name}", f"did you mean {meant[name]}?"
            yield Violation(launch.script.locate(word), message, hint)
    others = {name: word for word, name in reversed(wrong.items()) if not meant[name]}
    if others:
        names = tuple(reversed(others))
        message = f"{program} has no option{'s' if len(names) > 1 else ''} {', '.join(names)}"
        hint = "remove it" if len(names) == 1 else "remove them"
        yield Violation(launch.script.locate(others[names[0]]), message, hint)
