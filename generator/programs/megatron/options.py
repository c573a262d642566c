"""The options of the parsers of Megatron-LM and Megatron-DeepSpeed, by version, and a reader of
words by them.

megatron_options.json has the two projects' options, megatron_forks.json those of forks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from ...catalog.names import is_swapped, most_like
from ...dataclass import dataclass
from ...findings import Location, Version
from ...numerals import python_float, python_int, whole
from ...patterns import lazy_pattern
from ...places import PLACEHOLDER_IN_SHELL
from ...resources import read_text
from ...text.shell.records import Word
from ...text.wording import listed

if TYPE_CHECKING:  # to save start-up time
    from ...job.records import Job

Flavour = Literal["megatron-lm", "megatron-deepspeed"]
LM: Final[Flavour] = "megatron-lm"
MDS: Final[Flavour] = "megatron-deepspeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What tells the files of one project from those of another, beside its options."""

    name: str
    programs: frozenset[str]  #: its own training programs
    tokenizer: str  #: what it calls a tokenizer of transformers
    #: Keys of `layout` and `training` that its files say without an option of that name.
    phrases: Mapping[str, str]


#: Training programs that both projects have.
_OF_ALL: Final = frozenset({"pretrain_gpt.py", "pretrain_bert.py", "pretrain_t5.py"})
PROJECTS: Final[Mapping[Flavour, Project]] = {
    LM: Project(
        name="Megatron-LM",
        programs=_OF_ALL | {"pretrain_mamba.py", "pretrain_hybrid.py"},
        tokenizer="HuggingFaceTokenizer",
        phrases={
            "zero_stage": "ZeRO {}",
            "context_heads": "heads exchanged (a2a) over {} ranks",
        },
    ),
    MDS: Project(
        name="Megatron-DeepSpeed",
        programs=_OF_ALL,
        tokenizer="HFTokenizer",
        phrases={
            "zero_stage": "ZeRO stage {}",
            "virtual_pipeline": "{} chunks a stage",
            "offload: optimizer": "offload of the optimizer",
            "zero_hpz": "zero_hpz_partition_size: {}",
        },
    ),
}


def flavour_of(job: Job) -> Flavour | None:
    """The project whose arguments a job's script reads, as the spec's framework says."""
    return next((flavour for flavour in PROJECTS if flavour == job.framework.name), None)


Kind = Literal["int", "float", "text", "flag"]

#: How alike an option must be for a hint, by `most_like`: one letter in four differs.
_HINT_LIKENESS: Final = 0.75
#: The same where the option may well be of another program: one letter in twelve differs.
_SLIP_LIKENESS: Final = 0.92
#: The share of an option's name that is its beginning, and not that of another option.
_LEAST_BEGINNING: Final = 0.75
_LONGEST_NAME: Final = 80  # no option is as long, and comparing takes time


#: A fork that isn't known by name.
A_FORK: Final = "a fork"
#: The release that has the options which all later ones refuse (megatron/arguments.py @ v1.0).
_FIRST_RELEASE: Final = "Megatron-LM 1.0"
#: Unknown options, or removed ones, that show another program: one of them may be a slip.
_SHOW_ANOTHER: Final = 2
_PATH: Final = ("path",)
#: Keys of `data.tokenizer` that a kind reads, where these are known.
TOKENIZERS: Final = {
    "BertWordPieceLowerCase": ("vocab_file",),
    "BertWordPieceCase": ("vocab_file",),
    "GPT2BPETokenizer": ("vocab_file", "merges_file"),
    "SentencePieceTokenizer": _PATH,
    "GPTSentencePieceTokenizer": _PATH,
    "HuggingFaceTokenizer": _PATH,
    "HFTokenizer": _PATH,
    "Llama2Tokenizer": _PATH,
    "TikTokenizer": _PATH,
}
#: Options that the parsers read only to refuse them, with what replaced each.
REMOVED: Final = {
    "--batch-size": "--micro-batch-size",
    "--warmup": "--lr-warmup-fraction",
    "--model-parallel-size": "--tensor-model-parallel-size",
}
_NUMBER: Final = lazy_pattern(r"-[0-9]+$|-[0-9]*\.[0-9]+$")  # argparse reads such a word as a value
#: Variables that hold options by their names: `$EXTRA_ARGS`.
_OF_OPTIONS: Final = lazy_pattern(r"ARG|OPT|FLAG|EXTRA|PARAM|CMD|@|\*", re.IGNORECASE)
_MOST_DIGITS: Final = 18  # no option accepts a longer number, and it is slow to convert


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronOption:
    """One option as argparse has it."""

    name: str
    kind: Kind
    nargs: str | None = None  #: `+`, `*` or `?`; None: exactly one value, or none for a flag
    choices: tuple[object, ...] = ()  #: empty: any
    default: object = None  #: of the newest version; False for flags
    versions: tuple[int, ...] = ()  #: indexes of the table's versions that have it; empty: all
    #: indexes of the versions that have a choice, by choice; what isn't here, every version has
    choices_in: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: indexes of the versions with another default, by its text
    defaults: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def is_in(self, version: int) -> bool:
        """Return whether a version of the table has the option, by its index."""
        return not self.versions or version in self.versions

    def has_choice(self, choice: object, version: int) -> bool:
        """Return whether a version of the table takes a value that it has a list of."""
        places = self.choices_in.get(str(choice))
        return choice in self.choices and (places is None or version in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """Options that one of the two projects reads. Neither accepts abbreviations."""

    flavour: Flavour
    versions: tuple[str, ...]  #: oldest first
    aliases: Mapping[str, str]
    rows: Mapping[str, Mapping[str, Any]]
    #: the options that were asked for, by name: each is asked for by every launch line
    asked: dict[str, MegatronOption] = field(default_factory=dict, compare=False, repr=False)

    def get(self, name: str) -> MegatronOption | None:
        name = self.aliases.get(name, name)
        if name in self.asked:
            return self.asked[name]
        row = self.rows.get(name)
        if row is None:
            return None
        kind: Kind = row["kind"]
        option = self.asked[name] = MegatronOption(
            name=name,
            kind=kind,
            nargs=row.get("nargs"),
            choices=tuple(row.get("choices", ())),
            default=row.get("default", False if kind == "flag" else None),
            versions=_places(row.get("in", "")),
            choices_in=_by_text(row.get("choices_in", {})),
            defaults=_by_text(row.get("defaults", {})),
        )
        return option

    def index(self, release: Version | None) -> int:
        """Return the version of the table that a release has the options of: the newest that
        came no later. None is the newest release of all.
        """
        numbers = _numbers(self.versions)
        released = [index for index, number in enumerate(numbers) if number]
        if not released:
            return 0
        oldest, newest = released[0], released[-1]
        if release is None:
            return newest
        if _minor(release) > _minor(numbers[newest]):  # the branch that becomes the next one
            return len(numbers) - 1
        return max((index for index in released if numbers[index] <= release), default=oldest)

    def has(self, name: str) -> bool:
        return name in self.rows or name in self.aliases

    def near(self, name: str, *, slip: bool = False) -> str | None:
        """Return the option that an unknown one is probably meant to be.

        With `slip`, they differ only in a letter or two, or the end.
        """
        return _near(self.flavour, name, slip) if len(name) <= _LONGEST_NAME else None


def _places(text: str) -> tuple[int, ...]:
    """The indexes of versions that the table writes as one digit each: `"013"`."""
    return tuple(map(whole, text))


def _by_text(places: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    return {text: _places(where) for text, where in places.items()}


def _minor(release: Version) -> Version:
    """The major and the minor number of a release."""
    return release[:2]


@lru_cache(maxsize=2)  # one for each project, as below
def _numbers(versions: tuple[str, ...]) -> tuple[Version, ...]:
    """The numbers of each version; none of a branch or a commit."""
    matches = (re.match(r"core_v([0-9]+)\.([0-9]+)\.([0-9]+)", name) for name in versions)
    return tuple(tuple(map(whole, match.groups())) if match else () for match in matches)


@lru_cache(maxsize=2)
def _json(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(read_text(__package__, name))
    return data


@lru_cache(maxsize=2)
def option_table(flavour: Flavour) -> OptionTable:
    """The options of a project. Read from disk on the first call (1 ms)."""
    data = _json("megatron_options.json")[flavour]
    return OptionTable(
        flavour=flavour,
        versions=tuple(data["versions"]),
        aliases=data["aliases"],
        rows=data["options"],
    )


@lru_cache(maxsize=2)
def _options_left(flavour: Flavour) -> tuple[str, ...]:
    """The options of a project that are not removed, in order."""
    table = option_table(flavour)
    return tuple(sorted((table.rows.keys() - REMOVED.keys()) | table.aliases.keys()))


@lru_cache(maxsize=4096)
def _near(flavour: Flavour, name: str, slip: bool) -> str | None:
    """Find the option that a name is near.

    Answers are kept, because comparing with hundreds of names takes time.
    """
    table = option_table(flavour)
    dashed = "--" + name.lstrip("-").replace("_", "-").lower()
    underscored = "--" + dashed.removeprefix("--").replace("-", "_")
    for spelling in (dashed, underscored):
        if table.has(spelling):
            return spelling

    beginning_so = [option for option in table.rows if option.startswith(dashed)]
    if len(beginning_so) == 1:
        (option,) = beginning_so
        if not slip or len(dashed) >= _LEAST_BEGINNING * len(option):
            return option

    options = _options_left(flavour)
    swapped = next((option for option in options if is_swapped(dashed, option)), None)
    return swapped or most_like(dashed, options, _SLIP_LIKENESS if slip else _HINT_LIKENESS)


def forks() -> Mapping[str, Mapping[str, Any]]:
    """By each fork that is known by name, the options and choices that it has beyond the project
    that it started from.
    """
    forks_by_name: Mapping[str, Mapping[str, Any]] = _json("megatron_forks.json")["forks"]
    return forks_by_name


def fork_of(
    flavour: Flavour, unknown: Set[str], refused: Mapping[str, str], names: Set[str]
) -> tuple[str, Flavour]:
    """Return the fork's name and the project that it started from.

    There is no name where nothing says that it is a fork. `unknown` are options that are no slips
    of known ones, `refused` choices by option, `names` all known options.
    """
    signs = {name: _signs_of(fork, unknown, refused) for name, fork in forks().items()}
    likeliest = max(signs, key=lambda name: signs[name])
    if signs[likeliest]:
        return likeliest, forks()[likeliest]["base"]
    if len(names & REMOVED.keys()) >= _SHOW_ANOTHER and "--micro-batch-size" not in names:
        return _FIRST_RELEASE, flavour
    return (A_FORK if len(unknown) >= _SHOW_ANOTHER else ""), flavour


def _signs_of(fork: Mapping[str, Any], unknown: Set[str], refused: Mapping[str, str]) -> int:
    """Count the unknown options, and the refused choices, that a fork has."""
    options = len(unknown & {*fork["options"]})
    choices = sum(text in fork["choices"].get(option, ()) for option, text in refused.items())
    return options + choices


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOption:
    """An option as it is given."""

    name: str  #: the option's own, where an alias is written
    written: str  #: as written
    value: object  #: typed; None where it can't be known or is not of the option's type
    text: str  #: the values as written, for a message
    problem: str | None  #: why the parser refuses the values
    where: Location
    is_choice: bool = False  #: whether the parser has a list of what it accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A word that the parser doesn't know: an option, or a value that belongs to none."""

    word: str
    where: Location
    after: str | None = None  #: the option before it, as written

    @property
    def is_option(self) -> bool:
        return self.word.startswith("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedWords:
    """Options that words give. `complete`: no unknown word can hold options, but for `$@`."""

    given: tuple[GivenOption, ...]
    strays: tuple[Stray, ...]
    complete: bool
    unsure: frozenset[str] = frozenset()  #: options that are given on a condition of the script
    #: whether the words that the script is started with are among them: `"$@"`
    extended: bool = False


def parse_words(
    words: Sequence[Word], table: OptionTable, locate: Callable[[Word], Location]
) -> ParsedWords:
    """The options among `words`, in their order, and the places that `locate` gives them."""
    given: list[GivenOption] = []
    strays: list[Stray] = []
    unsure: set[str] = set()
    words = [_without_gap(word) for word in words]
    complete = True
    after_foreign = False  # behind an option that isn't in the table: words may be its values
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        text = word.prefix if word.value is None else word.value
        name, sign, value = text.partition("=")
        option = table.get(name) if name.startswith("-") else None
        if option is not None and sign:
            values = [None if word.value is None else value]
            given.append(_given(option, name, values, locate(word), explicit=True))
            after_foreign = False
        elif option is not None and word.value is not None:
            following = list(_values(words, index, option, table))
            index += len(following)
            complete = complete and not (option.nargs and any(map(_may_be_options, following)))
            values = [each.value for each in following]
            given.append(_given(option, name, values, locate(word)))
            after_foreign = False
        elif option is not None:  # its name may go on in what isn't known
            complete, after_foreign = False, False
        elif word.value is None:
            unsure |= _options_perhaps(word, table)
            holds_no_option = word.prefix.startswith("-") or _is_scripts_own(word)
            complete = complete and (bool(word.perhaps) or holds_no_option)
            after_foreign = True
        elif _is_option(text):
            strays.append(Stray(word=name, where=locate(word)))
            after_foreign = True
        elif not after_foreign:
            last = given[-1].written if given else None
            strays.append(Stray(word=text, where=locate(word), after=last))
    return ParsedWords(
        given=tuple(given),
        strays=tuple(strays),
        complete=complete,
        unsure=frozenset(unsure),
        extended=any(word.value is None and _is_scripts_own(word) for word in words),
    )


def _without_gap(word: Word) -> Word:
    """The word without what is still to be filled in, as in `<path to data>`, which isn't known."""
    gap = PLACEHOLDER_IN_SHELL.search(word.prefix)
    if gap is None:
        return word
    return Word(raw="", value=None, offset=word.offset, parts=(word.prefix[: gap.start()],))


def _is_scripts_own(word: Word) -> bool:
    """Return whether a word stands for those that the script is started with: `"$@"`."""
    return set(word.variables) == {"@"}


def _may_be_options(word: Word) -> bool:
    """Return whether a word among an option's values may be options: `$EXTRA_ARGS`."""
    return word.value is None and any(map(_OF_OPTIONS.search, word.variables))


def _options_perhaps(word: Word, table: OptionTable) -> set[str]:
    """The options that an unknown word may be, by the texts that branches of the script give it."""
    names = (text.partition("=")[0] for text in word.perhaps if text)
    return {option.name for option in map(table.get, names) if option is not None}


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and " " not in word


def _values(
    words: Sequence[Word], index: int, option: MegatronOption, table: OptionTable
) -> Iterator[Word]:
    """The words from `index` on that argparse takes as the option's values."""
    if option.nargs not in (None, "?"):
        most = len(words)
    elif option.nargs is None and option.kind == "flag":
        most = 0
    else:
        most = 1
    for word in words[index : index + most]:
        text = word.value
        if text is None:
            text = word.prefix or next(iter(word.perhaps), None) or ""
        is_known = text.startswith("-") and table.get(text.partition("=")[0]) is not None
        if _is_option(text) or is_known:
            return
        yield word


def _given(
    option: MegatronOption,
    written: str,
    values: Sequence[str | None],
    where: Location,
    *,
    explicit: bool = False,
) -> GivenOption:
    """An option with its values; `explicit`: as `--name=value`."""
    value, problem = _typed(option, values, explicit=explicit)
    text = " ".join("..." if value is None else value for value in values)
    return GivenOption(
        name=option.name,
        written=written,
        value=value,
        text=text,
        problem=problem,
        where=where,
        is_choice=bool(option.choices) and bool(values),
    )


def _typed(
    option: MegatronOption, values: Sequence[str | None], *, explicit: bool
) -> tuple[object, str | None]:
    """The value of an option by its type, and why the parser refuses it."""
    if option.kind == "flag":
        return True, "accepts no value" if explicit and option.nargs is None else None
    if not values and option.nargs in (None, "+"):
        return None, "has no value"
    results = [(None, None) if value is None else _convert(option, value) for value in values]
    problem = next((problem for _, problem in results if problem), None)
    typed = tuple(value for value, _ in results)
    if option.nargs in ("+", "*"):
        return (None if problem or None in typed else typed), problem
    return (typed[0] if typed else None), problem


def _convert(option: MegatronOption, text: str) -> tuple[object, str | None]:
    """One value of an option, and why it is none."""
    value: object = text
    if option.kind == "int":
        value = python_int(text)
        if value is None:
            return None, "requires an integer"
    elif option.kind == "float":
        value = python_float(text)
        if value is None:
            return None, "requires a number"
    if option.choices and value not in option.choices:
        return None, f"accepts {listed(option.choices)}"
    return value, None
