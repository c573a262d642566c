"""What wasn't checked: launches without a judged option, scripts without a recognized launch.

It has to be said: a list of no findings reads like a pass, even if nothing was compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from ..dataclass import dataclass
from ..findings import Finding, Location
from ..patterns import lazy_pattern
from ..programs.launching.entry_points import not_followed
from ..programs.launching.launch_line import LAUNCHERS, STARTS_PROCESSES
from ..programs.launching.settings import Settings, settings_of
from ..programs.launching.tables import PROGRAMS as PROGRAMS_OF_SHELL
from ..programs.launching.tables import program_name
from ..programs.megatron.arguments import brings_others, is_of_another_program
from ..programs.records import PROGRAMS
from ..secrets import mask
from ..submission.launches import Launch
from ..submission.repository import program_path
from ..submission.script import CommandDocument, LaunchScript
from ..submission.submission import Submission
from ..text.shell.definitions import BEGINNING
from ..text.shell.records import Word
from .job_signs import starts_launcher
from .rules.plans import changed_files
from .rules.program_options import reads_options

#: Directives of PBS, LSF, Moab, Cobalt and the Fujitsu scheduler.
_DIRECTIVE: Final = lazy_pattern(r"#(?:PBS|BSUB|MSUB|COBALT|PJM)\b")
#: What runs the text that a command prints, and commands that print.
_EVALUATED: Final = lazy_pattern(r"\beval\s{1,9}\"?(?:\$\(|`)\s{0,9}([\w-]{1,80})")
_PRINT: Final = frozenset({"echo", "printf"})
_NO_LAUNCH: Final = "no launch is recognized in it"
#: Programs that start others on nodes.
_STARTERS: Final = STARTS_PROCESSES | {"sbatch", "salloc"}
_OF_FRONT_ENDS: Final = "FRONT"  # how the ids of the rules on front ends' options begin


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A launch or a script that wasn't checked, and why."""

    where: Location  #: of the launch's program
    reason: str
    of: str = "launch"  #: or "script", or "memory"
    in_part: bool = False  #: whether something of it was judged all the same

    @property
    def message(self) -> str:
        lead = "memory not judged" if self.is_memory else "not checked"
        return f"{lead}: {self.reason}"

    @property
    def told(self) -> str:
        """The reason, for places that already say `not checked`, but not of what."""
        return self.message if self.is_memory else self.reason

    @property
    def is_memory(self) -> bool:
        """Whether everything but the memory that the run needs was checked."""
        return self.of == "memory"


def launches_not_checked(
    submission: Submission, judged: AbstractSet[Location] = frozenset()
) -> Iterator[NotChecked]:
    """Every launch of a submission of which no option was judged, with the reason.

    A launch was judged where a document was made of it, where it names one, where its program's
    whole parser is here, and where a rule on a front end's options found something in its words:
    `judged` has the places of such findings.
    """
    in_documents = {id(getattr(document, "launch", None)) for document in submission.documents}
    of_megatron = submission.of_kind("Megatron arguments")
    in_arguments = {id(getattr(document, "launch", None)) for document in of_megatron}
    named_documents = {link.where for link in submission.references if link.documents}
    for document in submission.documents:
        if not isinstance(document, (LaunchScript, CommandDocument)):
            continue
        # Directives of a script are judged, and the keys of a job's file.
        is_job = isinstance(document, CommandDocument) or bool(document.directives.entries)
        for launch in document.launches:
            settings = settings_of(launch)
            is_for_training = settings is None or settings.front_end.trains
            if not is_for_training or _is_read_elsewhere(launch, submission):
                continue
            is_judged = (
                (settings is not None and settings.is_judged)
                or (launch.front_end and _has_word_at(launch, judged))
                or id(launch) in in_documents
                or _has_word_at(launch, named_documents)
                or any(program.judges(launch) for program in PROGRAMS)
            )
            in_part = settings is not None and settings.is_judged_in_part
            is_told = _is_reported(launch, is_job=is_job) and (in_part or not is_judged)
            if is_told and not _has_whole_parser(launch):
                yield NotChecked(_place(launch), _reason(launch), in_part=in_part)
            option = brings_others(launch) if id(launch) in in_arguments else None
            if option is not None:
                reason = f"the settings that {option} brings are not read"
                yield NotChecked(_place(launch), reason, in_part=True)


def _is_read_elsewhere(launch: Launch, submission: Submission) -> bool:
    """Tell whether a launch's program is read on its own: from standard input, or as a script that
    sbatch gets.
    """
    program = launch.program
    if program is None or program.value == "-":
        return program is not None
    if not launch.calls or launch.calls[-1].program != "sbatch":
        return False
    path = program_path(launch) or ""
    return bool(submission.files.find(path, launch.script.text.path, "launch script"))


def _has_whole_parser(launch: Launch) -> bool:
    """Tell whether a program of a project's own is here with all that it reads, and was judged."""
    is_foreign = bool(launch.front_end) or is_of_another_program(launch)
    return not is_foreign and reads_options(launch)


def _is_reported(launch: Launch, *, is_job: bool) -> bool:
    """Tell whether a launch is reported when nothing of its program is judged.

    A job's directives, and a launcher's options, are judged in any case: that is enough for most
    launches, but not for a front end or a program with Megatron's options.
    """
    has_launcher = any(call.program in STARTS_PROCESSES for call in launch.calls)
    is_judged_around = is_job or has_launcher
    is_foreign = bool(launch.front_end) or is_of_another_program(launch)
    return is_foreign or not is_judged_around


#: Why nothing is said of the memory of a run whose program has no reader of needs.
_NO_ESTIMATE: Final = (
    "it is estimated from Megatron's options, DeepSpeed's configs and the Trainer's FSDP; of other "
    "runs `dsgen estimate` takes the spec (`dsgen init --from` the folder writes one)"
)


def memory_not_judged(submission: Submission) -> Iterator[NotChecked]:
    """The runs of which the memory isn't estimated, with the reason.

    It is said where the user expects an estimate: where a job, or a model and machines, are given,
    and of files that were edited since their plan was made.
    """
    context = submission.context
    has_job = context.job is not None or any(changed_files(submission))
    has_machines = context.model is not None and submission.cluster is not None
    if not (has_job or has_machines) or not submission.launches:
        return
    from .rules.needs import needs, unjudged  # saves start-up time where no job is known

    reasons = {(run.where, run.reason) for run in unjudged(submission)}
    is_estimated = any(True for _ in needs(submission))
    if has_job and not reasons and not is_estimated:
        reasons = {(_place(submission.launches[0]), _NO_ESTIMATE)}
    in_order = sorted(reasons, key=lambda pair: (pair[0].path, pair[0].line or 0, pair[1]))
    for where, reason in in_order:
        yield NotChecked(where=where, reason=reason, of="memory")


def places_judged(findings: Iterable[Finding]) -> frozenset[Location]:
    """The places at which a rule on a front end's options found something."""
    return frozenset(
        finding.where for finding in findings if finding.rule.startswith(_OF_FRONT_ENDS)
    )


def paths_not_checked(
    unread: Iterable[NotChecked], submissions: Iterable[Submission]
) -> frozenset[str]:
    """The scripts of which nothing was judged: all launches are `unread`, and no directives."""
    unread_launches = Counter(launch.where.path for launch in unread if not launch.in_part)
    scripts = (script for submission in submissions for script in submission.scripts)
    return frozenset(
        script.path
        for script in scripts
        if script.launches
        and not script.directives.entries
        and unread_launches[script.path] == len(script.launches)
    )


def scripts_not_checked(
    submissions: Iterable[Submission], judged: AbstractSet[str]
) -> tuple[NotChecked, ...]:
    """The files at the paths in `judged`, where all are scripts with nothing to judge in them.

    Such a script starts no program that is recognized, and has no directives. Nothing is said of
    it beside other files: it sets up what these need.
    """
    documents = [document for submission in submissions for document in submission.documents]
    idle = {
        document.path
        for document in documents
        if isinstance(document, LaunchScript)
        and not document.launches
        and not document.directives.entries
    }
    # A script may have a config in it, which was judged.
    idle -= {document.path for document in documents if not isinstance(document, LaunchScript)}
    if not judged <= idle:
        return ()
    beginnings = (Location(path=path, line=1, column=1) for path in sorted(judged))
    return tuple(NotChecked(where=where, reason=_NO_LAUNCH, of="script") for where in beginnings)


def jobs_not_recognized(submissions: Iterable[Submission]) -> Iterator[NotChecked]:
    """The scripts that are jobs, though no launch is recognized and nothing was judged in them.

    They have directives of a scheduler that isn't read, an unknown program starts a launcher, or
    they call Slurm, a launcher or a container for something that isn't known. Of
    others a line that trains isn't followed.
    """
    scripts = {script.path: script for group in submissions for script in group.scripts}
    # The launches of a script that another calls are that one's.
    called = {text.path for script in scripts.values() for _, text in script.shell.followed}
    launches = (launch for script in scripts.values() for launch in script.launches)
    launched_in = {call.where.path for launch in launches for call in launch.calls}
    for path, script in sorted(scripts.items()):
        has_others = bool(script.launches or script.directives.entries)
        lines = [
            NotChecked(where=script.shell.locate(word), reason=reason, in_part=has_others)
            for word, reason in not_followed(script)
        ]
        if lines:
            yield from lines
            continue
        if script.launches or script.directives.entries or path in launched_in:
            continue
        for number, line in enumerate(script.shell.text.lines, 1):
            directive = _DIRECTIVE.match(line)
            if directive:
                where = Location(path=path, line=number, column=1)
                reason = f"{directive[0]} lines are not read, and {_NO_LAUNCH}"
                yield NotChecked(where=where, reason=reason, of="script")
                break
        else:
            launcher = _hidden_launcher(script)
            if launcher is None and path not in called:
                launcher = _starter(script)
            launcher = launcher or _launch_in_argument(script)
            hidden = script.shell.locate(launcher) if launcher is not None else None
            place = hidden or _launch_in_text(script)
            if place is not None:
                yield NotChecked(where=place, reason=_NO_LAUNCH, of="script")


def _launch_in_text(script: LaunchScript) -> Location | None:
    """The first launch line in the text of a here-document, as of a script that it writes."""
    for text in script.shell.heredocs:
        if starts_launcher(text.content.encode()):
            return script.shell.locate(text.offset)
    return None


def _launch_in_argument(script: LaunchScript) -> Word | None:
    """The first argument with a launch line, of an unknown program; or of `echo` in a script that
    evaluates what its functions print.
    """
    content = script.shell.text.content
    functions = {match[1] or match[2] for match in BEGINNING.finditer(content)}
    evaluates = not functions.isdisjoint(_EVALUATED.findall(content))
    for command in script.shell.commands:
        is_printed = command.words[0].value in _PRINT
        is_run = evaluates if is_printed else not _is_tool(command.words[0])
        for word in command.words[1:] if is_run else ():
            written = word.raw.strip("\"'")
            if " " in written and starts_launcher(written.encode()):
                return word
    return None


def _hidden_launcher(script: LaunchScript) -> Word | None:
    """The launcher that an unknown program starts, as in `tool torchrun train.py`.

    A Python program has to follow. Whatever is behind `--` counts as a launcher.
    """
    for command in script.shell.commands:
        if _is_tool(command.words[0]):
            continue
        values = [word.value or "" for word in command.words]
        python = max((at for at, value in enumerate(values) if value.endswith(".py")), default=0)
        for word, word_before in zip(command.words[1:python], values, strict=False):
            if program_name(word) in LAUNCHERS or word_before == "--":
                return word
    return None


def _is_tool(word: Word) -> bool:
    """Tell whether a program is one that doesn't train."""
    return program_name(word) in PROGRAMS_OF_SHELL["tools"]


def _starter(script: LaunchScript) -> Word | None:
    """What starts something on nodes or in a container, and no tool that only looks around."""
    commands = script.shell.commands
    container, subcommands = "singularity", PROGRAMS_OF_SHELL["subcommands"]["singularity"]
    for command in commands:
        words = command.run
        name = program_name(words[0]) if words else ""
        runs_in_container = name == container and any(
            word.value in subcommands for word in words[1:]
        )
        if not runs_in_container and name not in _STARTERS:
            continue
        inner = [each.words[0] for each in commands if each.inside == command.index]
        is_tool = any(map(_is_tool, words[1:])) or (bool(inner) and all(map(_is_tool, inner)))
        if not is_tool:
            return words[0]
    return None


def _has_word_at(launch: Launch, places: AbstractSet[Location]) -> bool:
    """Tell whether a word of the launch is at one of these places."""
    return bool(places) and any(launch.script.locate(word) in places for word in launch.arguments)


def _place(launch: Launch) -> Location:
    return launch.calls[0].where if launch.program is None else launch.script.locate(launch.program)


def _reason(launch: Launch) -> str:
    settings = settings_of(launch)
    if settings is not None:
        return _reason_of_front_end(settings)

    # What stands in the program's place may be no program, but a secret.
    last_part = launch.program.parts[-1] if launch.program and launch.program.parts else None
    name = mask(last_part or "").rpartition("/")[2]
    if is_of_another_program(launch):
        return f"{name} has Megatron's options, and nothing that it imports here is Megatron's"
    return f"the options of {name or 'the program'} are its own"


def _reason_of_front_end(settings: Settings) -> str:
    """Why options of a front end aren't judged: another engine, no file, or a program unknown."""
    front_end = settings.front_end
    name, engine = front_end.name, front_end.otherwise
    if engine and settings.starts_another:
        keys = " and keys" if front_end.spelling == "keys" else ""
        checked = f"; only counts{keys} are checked" if settings.is_judged_in_part else ""
        return f"{engine}, with which {name} trains here{checked}"
    if front_end.in_file:
        return f"the file with the settings of {name} is not among the files read"
    of_program = f" of {mask(settings.program)}" if front_end.reads else ""
    return f"the options{of_program} of {name} are not read"
