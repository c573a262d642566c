"""Arguments of Megatron-LM and Megatron-DeepSpeed, from a launch line or a file of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from pathlib import PurePosixPath
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...findings import Location
from ...job.records import Job
from ...patterns import lazy_pattern
from ...places import PLACEHOLDER_IN_SHELL, Lines
from ...submission.launches import Launch
from ...submission.repository import program_of
from ...text.document import FileText, Kind
from ...text.shell.records import Word
from ...text.wording import whole_number
from ..launching.front_ends import FrontEnd
from ..launching.settings import Settings, settings_of
from .front_ends import engine_words
from .options import (
    A_FORK,
    LM,
    MDS,
    PROJECTS,
    REMOVED,
    Flavour,
    GivenOption,
    OptionTable,
    ParsedWords,
    Stray,
    flavour_of,
    fork_of,
    option_table,
    parse_words,
)
from .parser import ProgramOptions, copy_above, options_beside

#: Options that only Megatron's programs have; three of them are no chance.
_SIGNS: Final = frozenset(
    [
        "--num-layers",
        "--hidden-size",
        "--num-attention-heads",
        "--tensor-model-parallel-size",
        "--seq-length",
        "--pipeline-model-parallel-size",
        "--micro-batch-size",
        "--global-batch-size",
        "--train-iters",
        "--max-position-embeddings",
        "--ffn-hidden-size",
        "--lr-warmup-fraction",
        "--yaml-cfg",
    ]
)
_ENOUGH_SIGNS: Final = 3  # of which one or two may be another program's
#: Options that no other parser has. With enough signs they say whose arguments they are, whatever
#: the script is called.
_OWN_SIGNS: Final = frozenset(
    {
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--context-parallel-size",
        "--expert-model-parallel-size",
        "--use-distributed-optimizer",
        "--use-megatron-fsdp",
        "--use-torch-fsdp2",
        "--no-pipeline-parallel",
        "--transformer-impl",
    }
)
MOST_STRAYS: Final = 300  #: unknown options that are compared with all others
#: Options that mean Megatron-DeepSpeed, whatever else is given.
_DEEPSPEED_SIGNS: Final = frozenset(
    {"--deepspeed", "--deepspeed_config", "--zero-stage", "--no-pipeline-parallel"}
)
#: Options that bring others along: from a file, or from a checkpoint.
_ELSEWHERE: Final = frozenset({"--yaml-cfg", "--use-checkpoint-args"})
#: A word of a shell, or a comment: quoted parts, escaped signs, and `<placeholders with blanks>`.
_WORD: Final = lazy_pattern(
    r"""#[^\r\n]*|(?:'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\\[^\r\n]"""
    r"""|<[A-Za-z][^<>\r\n]{0,100}>|[^\s'"\\])+"""
)
#: A part of a word: in single quotes, in double quotes, an escaped sign, or plain.
_PART: Final = lazy_pattern(r"""'([^']*)'|"((?:\\[\s\S]|[^"\\])*)"|\\([^\r\n])|([^\s'"\\]+)""")
#: What begins a variable or a command whose output is put in.
_VARIABLE: Final = lazy_pattern(r"[$`]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronArguments:
    """Options by name (`--num-layers`), each typed as Megatron's parser types it.

    A value is None where it can't be known.
    """

    document_kind: ClassVar[Kind] = "Megatron arguments"
    #: how the model is divided, whatever other options are called
    says_division: ClassVar[bool] = True
    path: str
    flavour: Flavour
    values: Mapping[str, object]
    places: Mapping[str, Location] = field(default_factory=dict)  #: of each option
    launch: Launch | None = None
    program: str | None = None  #: the training script's file name
    given: tuple[GivenOption, ...] = ()  #: every option in order, repeats included
    strays: tuple[Stray, ...] = ()  #: words that Megatron's own parser doesn't know
    #: whether every option is among `given` and `unsure`; variables may hold more
    complete: bool = True
    unsure: frozenset[str] = frozenset()  #: options that the script gives on a condition
    extended: bool = False  #: whether whoever starts the script may add options, by `"$@"`
    #: whether an option is given that its program alone has, which may divide the model otherwise
    varies: bool = False
    fork: str = ""  #: whose options they are, where the project itself lacks some
    front_end: FrontEnd | None = None  #: that starts Megatron with these arguments
    #: what the program's own Python reads
    beside: ProgramOptions = field(default_factory=ProgramOptions, repr=False)

    @property
    def sequence_length(self) -> int | None:
        """The tokens of a sequence; None where they aren't known."""
        return self.integer("--seq-length")

    @property
    def config_reader(self) -> str | None:
        """The program that reads the DeepSpeed config which the launch line names."""
        return self.flavour if self.flavour == "megatron-deepspeed" else None

    @property
    def table(self) -> OptionTable:
        return option_table(self.flavour)

    @property
    def is_own_program(self) -> bool:
        """Return whether the script is one of the project's own, which adds no options."""
        return self.program in PROJECTS[self.flavour].programs

    @property
    def is_anothers(self) -> bool:
        """Whether the script is none of the project's own.

        It may have options, choices and data of its own.
        """
        return self.launch is not None and not self.is_own_program

    @property
    def trains(self) -> bool:
        """Whether it is a training run.

        In evaluation and inference the same options have other meanings.
        """
        if self.launch is None or self.front_end is not None:
            return True
        is_training_program = (self.program or "").startswith("pretrain_")
        lengths = ("--train-iters", "--train-samples", "--train-tokens")
        return is_training_program or any(map(self.has, lengths))

    @property
    def is_checked(self) -> bool:
        """Whether Megatron's parser checks the arguments.

        It checks those of training, and of other programs that it starts.
        """
        return self.trains or self.beside.is_checked

    def has(self, name: str) -> bool:
        return name in self.values

    def lacks(self, name: str, *, as_written: bool = False) -> bool:
        """Return whether the option is surely not given.

        `as_written` asks it where nobody adds options to the script's.
        """
        return name not in self.values and self.sure(name, as_written=as_written)

    def sure(self, *names: str, as_written: bool = False) -> bool:
        """Return whether it is known of each option if it is given."""
        is_complete = self.complete and (as_written or not self.extended)
        return is_complete and all(name in self.values or name not in self.unsure for name in names)

    def may_have(self, name: str) -> bool:
        return name in self.values or name in self.unsure

    def value(self, name: str, default: object = None) -> object:
        """The value of an option; `default` where it isn't given, None where it can't be known."""
        return self.values.get(name, None if name in self.unsure else default)

    def integer(self, name: str, default: int | None = None) -> int | None:
        """An integer; `default` where nothing is given, None where it can't be known."""
        value = self.value(name, default)
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        return whole_number(value)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number; `default` where nothing is given, None where it can't be known."""
        value = self.value(name, default)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def choice(self, name: str, default: object) -> object:
        """Return the value given, or the parser's `default` where surely none is.

        Returns None where that can't be known.
        """
        if self.has(name):
            return self.value(name)
        return default if self.sure(name) else None

    def setting(self, name: str, default: int | None) -> int | None:
        """As `choice`, of an integer."""
        if self.has(name):
            return self.integer(name)
        return default if self.sure(name) else None

    def locate(self, name: str) -> Location:
        """The place of an option, else of the program, else the file."""
        return self.places.get(name) or self.places.get("", Location(path=self.path))


def from_launches(
    launches: Iterable[Launch], spec_flavour: Flavour | None = None
) -> Iterator[MegatronArguments]:
    """Return the arguments on the launch lines of programs that take them.

    Arguments that show that they aren't Megatron's are left out.

    GLM, CPM and SwissArmyTransformer, of what began as Megatron-LM 1.0, have options that Megatron
    refuses. Where a job spec says the framework, `spec_flavour`, any sign is enough.
    """
    for launch in launches:
        if launch.front_end:
            settings = settings_of(launch)
            is_megatrons = settings is not None and settings.front_end.engine == "megatron"
            if settings is not None and is_megatrons and settings.starts_the_engine:
                yield _of_front_end(settings)
            continue
        program, words = _program_of(launch.program), _words(launch)
        if not _are_megatrons(words, program, spec_flavour):
            continue
        is_named_so = (
            program is None or program in PROJECTS[LM].programs or program.startswith("pretrain")
        )
        has_own_signs = not _names(words).isdisjoint(_OWN_SIGNS)
        may_be_megatrons = (
            is_named_so or spec_flavour is not None or has_own_signs or program_of(launch)
        )
        if may_be_megatrons and options_beside(program_of(launch)).of_megatron:
            path, locate = launch.script.text.path, launch.script.locate
            yield _arguments(
                path, words, locate, launch=launch, program=program, spec_flavour=spec_flavour
            )


def is_of_another_program(launch: Launch) -> bool:
    """Return whether a launch has Megatron's options and a program without a word of Megatron.

    Its own parser may read them otherwise, so that they aren't judged.
    """
    if launch.front_end or options_beside(program_of(launch)).of_megatron:
        return False
    words = _words(launch)
    has_own_signs = not _names(words).isdisjoint(_OWN_SIGNS)
    return has_own_signs and _are_megatrons(words, _program_of(launch.program), None)


def brings_others(launch: Launch) -> str | None:
    """The option of a launch that brings others from elsewhere, which aren't read; None if none."""
    names_given = _names(_words(launch))
    return next((name for name in sorted(_ELSEWHERE) if name in names_given), None)


def _program_of(word: Word | None) -> str | None:
    """The file name of a launch's program; None where it can't be known."""
    end_of_path = word.parts[-1] if word is not None and word.parts else None
    return None if end_of_path is None else PurePosixPath(end_of_path).name


def _words(launch: Launch) -> tuple[Word, ...]:
    """The words that a launch gives its program.

    Where branches of the script start different programs, the program's word is among them: what
    follows may be the value of an option in it.
    """
    program = launch.program
    if program is None or program.value is not None or program.prefix or program.variables:
        return launch.arguments
    return (program, *launch.arguments)


def _are_megatrons(
    words: Iterable[Word], program: str | None, spec_flavour: Flavour | None
) -> bool:
    """Return whether the words have enough of Megatron's options, and none of its beginnings."""
    names, is_own_program = _names(words), program in PROJECTS[LM].programs
    has_removed = not names.isdisjoint(REMOVED)
    if has_removed and not is_own_program and "--micro-batch-size" not in names:
        return False  # of Megatron-LM 1.0, from which other projects began
    enough = 1 if is_own_program or spec_flavour else _ENOUGH_SIGNS
    return len(names & _SIGNS) >= enough


def of_job(job: Job, launches: Iterable[Launch]) -> Iterator[MegatronArguments]:
    """Return the arguments of the job's own script.

    They are on launch lines that don't show by themselves whose they are.
    """
    spec_flavour, script = flavour_of(job), PurePosixPath(job.launch.script).name
    if not spec_flavour:
        return
    for arguments in from_launches(launches, spec_flavour):
        if arguments.program == script:
            yield arguments


def read_file(file: FileText) -> Iterator[MegatronArguments]:
    """Read a file of options, one or more a line, as dsgen writes `arguments.txt`.

    There are no options where the file is no Megatron's.
    """
    path, words, lines = file.text.path, list(_words_of(file.text.content)), Lines(file.text)
    if len(_names(words) & _SIGNS) < _ENOUGH_SIGNS:
        yield MegatronArguments(path=path, flavour=LM, values={})
    else:
        yield _arguments(path, words, lambda word: lines.locate(word.offset))


def _words_of(text: str) -> Iterator[Word]:
    """The words of a text, quoted for a shell; what a variable gives isn't known."""
    for match in _WORD.finditer(text):
        if match.group().startswith("#"):
            continue
        parts: list[str] = []
        before_variable: str | None = None  # the text before the first variable
        for single, double, escaped, plain in _PART.findall(match.group()):
            part = single or re.sub(r"\\(.)", r"\1", double) or escaped or plain
            if not before_variable and _VARIABLE.search(double or plain):
                before_variable = "".join(parts) + _VARIABLE.split(part, maxsplit=1)[0]
            parts.append(part)
        value = "".join(parts) if before_variable is None else None
        yield Word(
            raw="", value=value, offset=match.start(), parts=(value or before_variable or "",)
        )


def _names(words: Iterable[Word]) -> set[str]:
    return {word.prefix.partition("=")[0] for word in words if word.prefix.startswith("--")}


def _likely_flavour(names: Set[str], beside: ProgramOptions) -> Flavour:
    """The project that options with these names are for.

    DeepSpeed's own signs show Megatron-DeepSpeed, as do more options that it has alone than
    Megatron-LM has alone.
    """
    if beside.parser is not None:  # the program's own parser tells
        return MDS if _DEEPSPEED_SIGNS & beside.strings else LM
    lm, mds = option_table(LM), option_table(MDS)
    more_of_mds = sum(mds.has(name) - lm.has(name) for name in names)
    return MDS if _DEEPSPEED_SIGNS & names or more_of_mds > 0 else LM


def _arguments(
    path: str,
    words: Sequence[Word],
    locate: Callable[[Word], Location],
    *,
    launch: Launch | None = None,
    program: str | None = None,
    spec_flavour: Flavour | None = None,
) -> MegatronArguments:
    """The arguments that words are, of the project or fork whose options they seem to be."""
    beside = options_beside(program_of(launch))
    if beside.copy is None:  # of a program elsewhere, whose release the folders above tell
        beside = replace(beside, copy=copy_above(launch.script.text.path if launch else path))
    names = _names(words)

    def parsed_as(flavour: Flavour) -> ParsedWords:
        lines = launch.script.text.lines if launch else []
        return _without_excused(parse_words(words, option_table(flavour), locate), beside, lines)

    flavour = spec_flavour or _likely_flavour(names - beside.strings, beside)
    parsed, fork = parsed_as(flavour), ""
    if not beside.parser:
        fork, base = _fork(flavour, parsed, program)
        if base != flavour:
            flavour, parsed = base, parsed_as(base)
    names_given = {option.name for option in parsed.given}
    places = {option.name: option.where for option in parsed.given}
    if words:
        places[""] = locate(launch.program if launch and launch.program else words[0])
    return MegatronArguments(
        path=path,
        flavour=flavour,
        values={option.name: option.value for option in parsed.given},
        places=places,
        launch=launch,
        program=program,
        given=parsed.given,
        strays=parsed.strays,
        complete=parsed.complete
        and not _ELSEWHERE & names_given
        and not (launch is not None and launch.is_cut),
        unsure=parsed.unsure - names_given,
        extended=parsed.extended,
        varies=any(
            not option_table(LM).has(name) and not option_table(MDS).has(name)
            for name in names & beside.strings
        ),
        fork=fork,
        beside=beside,
    )


def _of_front_end(settings: Settings) -> MegatronArguments:
    """The arguments that a front end gives Megatron."""
    launch, front_end = settings.launch, settings.front_end
    words = engine_words(settings)
    parsed = parse_words(words.words, option_table(LM), launch.script.locate)
    parsed = _without_excused(parsed, ProgramOptions(), launch.script.text.lines)
    names = {option.name for option in parsed.given}
    places = {option.name: option.where for option in parsed.given}
    places[""] = launch.script.locate(launch.program or launch.calls[0].word)
    # Its own parser has other choices than Megatron's.
    options = (
        replace(option, problem=None) if option.is_choice else option for option in parsed.given
    )
    return MegatronArguments(
        path=launch.script.text.path,
        flavour=LM,
        values={option.name: option.value for option in parsed.given},
        places=places,
        launch=launch,
        program=front_end.name,
        given=tuple(options),
        strays=tuple(stray for stray in parsed.strays if stray.is_option),
        complete=parsed.complete and not _ELSEWHERE & names and not launch.is_cut,
        unsure=(parsed.unsure | words.unsure) - names,
        extended=parsed.extended,
        front_end=front_end,
    )


def _without_excused(
    parsed: ParsedWords, beside: ProgramOptions, lines: Sequence[str]
) -> ParsedWords:
    """Return the words without the faults that the program's own Python excuses, and without those
    on `lines` that are still to be filled in.
    """
    given = (
        replace(option, problem=None)
        if option.problem and _may_be_right(option, beside, lines)
        else option
        for option in parsed.given
    )
    # Each line once: a long one may hold all strays.
    texts = {_line_of(stray.where, lines) for stray in parsed.strays}
    to_fill = {text for text in texts if PLACEHOLDER_IN_SHELL.search(text)}
    strays = (
        stray
        for stray in parsed.strays
        if stray.word not in beside.strings and _line_of(stray.where, lines) not in to_fill
    )
    return replace(parsed, given=tuple(given), strays=tuple(strays))


def _may_be_right(option: GivenOption, beside: ProgramOptions, lines: Sequence[str]) -> bool:
    """Return whether values that the project's parser refuses may be right.

    The program's own parser has another choice or type; or there is no value because nothing came
    of a variable, or a shell took it for a redirection.
    """
    if option.text in beside.strings:
        return True
    is_no_integer = (option.problem or "").startswith("requires an integer")
    if is_no_integer and beside.types.get(option.written, "int") != "int":
        return True
    after = _line_of(option.where, lines).partition(option.written)[2]
    return not option.text and re.match(r"[\s=\"']*[$<]", after) is not None


def _line_of(where: Location, lines: Sequence[str]) -> str:
    if where.excerpt is not None:
        return where.excerpt
    return lines[where.line - 1] if where.line and where.line <= len(lines) else ""


def _fork(flavour: Flavour, parsed: ParsedWords, program: str | None) -> tuple[str, Flavour]:
    """Return the fork whose options they are, and the project that it started from.

    Programs that aren't its own may add options, and are no fork for that.
    """
    table = option_table(flavour)
    strays = [stray.word for stray in parsed.strays if stray.is_option][:MOST_STRAYS]
    unknown = {name for name in strays if table.near(name, slip=True) is None}
    refused = {
        option.name: option.text for option in parsed.given if option.problem and option.is_choice
    }
    fork, base = fork_of(flavour, unknown, refused, {option.name for option in parsed.given})
    if program in PROJECTS[flavour].programs:
        return fork, base
    # Of another program only a fork that is known by name is certain.
    is_training_program = (program or "").startswith("pretrain_")
    return (fork, base) if fork != A_FORK and (refused or is_training_program) else ("", flavour)
