"""Launches of which no option was judged, and scripts in which none is recognized.

An answer of no findings would be read as a pass, though nothing was held against anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from ..dataclass import dataclass
from ..findings import Finding, Location
from ..patterns import lazy_pattern
from ..programs.launching.launch_line import LAUNCHERS, STARTS_PROCESSES
from ..programs.launching.settings import settings_of
from ..programs.launching.tables import PROGRAMS as PROGRAMS_OF_SHELL
from ..programs.launching.tables import program_name
from ..programs.megatron.arguments import is_of_another_program
from ..programs.records import PROGRAMS
from ..secrets import mask
from ..submission.launches import Launch
from ..submission.script import CommandDocument, LaunchScript
from ..submission.submission import Submission
from ..text.shell.records import Word
from .rules.plans import changed_files

#: Directives of PBS, LSF, Moab, Cobalt and the Fujitsu scheduler.
_DIRECTIVE: Final = lazy_pattern(r"#(?:PBS|BSUB|MSUB|COBALT|PJM)\b")
_NO_LAUNCH: Final = "no launch is recognized in it"
_OF_FRONT_ENDS: Final = "FRONT"  # how the names of their rules begin


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A launch or a script that wasn't checked, and why."""

    where: Location  #: of the launch's program
    reason: str
    of: str = "launch"  #: or "script", or "memory"
    in_part: bool = False  #: whether something of it was judged all the same

    @property
    def message(self) -> str:
        what = "memory not judged" if self.is_memory else "not checked"
        return f"{what}: {self.reason}"

    @property
    def told(self) -> str:
        """The reason, for readers that have no word for what wasn't checked."""
        return self.message if self.is_memory else self.reason

    @property
    def is_memory(self) -> bool:
        """Whether everything but the memory that the run needs was checked."""
        return self.of == "memory"


def launches_not_checked(
    submission: Submission, judged: AbstractSet[Location] = frozenset()
) -> Iterator[NotChecked]:
    """Every launch of a submission of which no option was judged, with the reason.

    A launch was judged where a document was made of it, where it names one, and where a rule on a
    front end's options found something in its words, of which `judged` has the places.
    """
    in_documents = {id(getattr(document, "launch", None)) for document in submission.documents}
    names = {link.where for link in submission.references if link.documents}
    for document in submission.documents:
        if not isinstance(document, (LaunchScript, CommandDocument)):
            continue
        # Directives of a script are judged, and the keys of a job's file.
        is_job = isinstance(document, CommandDocument) or bool(document.directives.entries)
        for launch in document.launches:
            is_from_stdin = launch.program is not None and launch.program.value == "-"
            if is_from_stdin:
                continue  # its text is read on its own
            settings = settings_of(launch)
            if settings is not None and not settings.front_end.trains:
                continue
            is_judged = (
                (settings is not None and settings.is_judged)
                or (launch.front_end and _has_word_at(launch, judged))
                or id(launch) in in_documents
                or _has_word_at(launch, names)
                or any(program.judges(launch) for program in PROGRAMS)
            )
            # A launcher's options are judged, but of a front end only its own count.
            has_launcher = is_job or any(call.program in STARTS_PROCESSES for call in launch.calls)
            counts = launch.front_end or not has_launcher or is_of_another_program(launch)
            in_part = settings is not None and settings.is_judged_in_part
            if counts and (in_part or not is_judged):
                yield NotChecked(_place(launch), _reason(launch), in_part=in_part)


#: Why nothing is said of the memory of a run whose program has no reader of needs.
_NO_ESTIMATE: Final = (
    "it is estimated from Megatron's options, DeepSpeed's configs and the Trainer's FSDP; of other "
    "runs `dsgen estimate` takes the spec (`dsgen init --from` the folder writes one)"
)


def memory_not_judged(submission: Submission) -> Iterator[NotChecked]:
    """The runs of a job of which the memory isn't estimated, with the reason.

    It is said where a job is given, and of files that were edited since their plan was made; of
    what needs a job, where a model is given and machines.
    """
    context = submission.context
    is_of_job = context.job is not None or any(changed_files(submission))
    is_asked = is_of_job or (context.model is not None and submission.cluster is not None)
    if not is_asked or not submission.launches:
        return
    from .rules.needs import needs, unjudged  # saves start-up time where no job is known

    runs = {(run.where, run.reason) for run in unjudged(submission)}
    if is_of_job and not runs and not any(True for _ in needs(submission)):
        launch = submission.launches[0]
        runs = {(_place(launch), _NO_ESTIMATE)}
    for where, reason in sorted(runs, key=lambda run: (run[0].path, run[0].line or 0, run[1])):
        yield NotChecked(where=where, reason=reason, of="memory")


def places_judged(findings: Iterable[Finding]) -> frozenset[Location]:
    """The places of which a rule on the options of a front end says something."""
    return frozenset(
        finding.where for finding in findings if finding.rule.startswith(_OF_FRONT_ENDS)
    )


def paths_not_checked(
    unread: Iterable[NotChecked], submissions: Iterable[Submission]
) -> frozenset[str]:
    """The scripts without directives, of which all launches are `unread`: nothing was judged."""
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
    """The files that were read, where all of them are scripts in which there was nothing to judge.

    They start no program that is recognized, and have no directives. Beside other files nothing is
    said of such scripts: they set up what the others need. `judged` has the paths.
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
    first_places = (Location(path=path, line=1, column=1) for path in sorted(judged))
    return tuple(NotChecked(where=where, reason=_NO_LAUNCH, of="script") for where in first_places)


def jobs_not_recognized(submissions: Iterable[Submission]) -> Iterator[NotChecked]:
    """The scripts in which no launch is recognized, and nothing was judged, that are jobs all the
    same: with directives of a scheduler that isn't read, or a launcher behind an unknown program.
    """
    scripts = {script.path: script for one in submissions for script in one.scripts}
    for path, script in sorted(scripts.items()):
        if script.launches or script.directives.entries:
            continue
        lines = enumerate(script.shell.text.lines, 1)
        found = next(((at, match) for at, line in lines if (match := _DIRECTIVE.match(line))), None)
        if found:
            where = Location(path=path, line=found[0], column=1)
            reason = f"{found[1][0]} lines are not read, and {_NO_LAUNCH}"
            yield NotChecked(where=where, reason=reason, of="script")
        elif (hidden := _hidden_launcher(script)) is not None:
            yield NotChecked(where=script.shell.locate(hidden), reason=_NO_LAUNCH, of="script")


def _hidden_launcher(script: LaunchScript) -> Word | None:
    """The launcher, or what is behind `--`, that an unknown program starts with one in Python."""
    for command in script.shell.commands:
        if program_name(command.words[0]) in PROGRAMS_OF_SHELL["tools"]:
            continue
        values = [word.value or "" for word in command.words]
        last = max((at for at, value in enumerate(values) if value.endswith(".py")), default=0)
        for word, before in zip(command.words[1:last], values, strict=False):
            if program_name(word) in LAUNCHERS or before == "--":
                return word
    return None


def _has_word_at(launch: Launch, places: AbstractSet[Location]) -> bool:
    """Tell whether a word of the launch is at one of these places."""
    return bool(places) and any(launch.script.locate(word) in places for word in launch.arguments)


def _place(launch: Launch) -> Location:
    return launch.calls[0].where if launch.program is None else launch.script.locate(launch.program)


def _reason(launch: Launch) -> str:
    settings = settings_of(launch)
    if settings is not None:
        name, engine = settings.front_end.name, settings.front_end.otherwise
        if engine and settings.starts_another:
            keys = " and keys" if settings.front_end.spelling == "keys" else ""
            checked = f"; only counts{keys} are checked" if settings.is_judged_in_part else ""
            return f"{engine}, with which {name} trains here{checked}"
        if settings.front_end.in_file:
            return f"the file with the settings of {name} is not among the files read"
        of_program = f" of {mask(settings.program)}" if settings.front_end.reads else ""
        return f"the options{of_program} of {name} are not read"
    # What stands in the program's place may be no program, but a secret.
    last_part = launch.program.parts[-1] if launch.program and launch.program.parts else None
    name = mask(last_part or "").rpartition("/")[2]
    if is_of_another_program(launch):
        return f"{name} has Megatron's options, and nothing that it imports here is Megatron's"
    return f"the options of {name or 'the program'} are its own"
