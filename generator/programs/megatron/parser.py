"""What the Python of a program says of its options: the strings in it and in files beside it, and
what the parser of the Megatron that it uses asks for.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ...catalog.names import most_like
from ...dataclass import dataclass
from ...patterns import lazy_pattern
from ...submission.repository import STRING, python_beside, strings_in
from ...text.around import folders_above, is_readable, text_around, until_next_check
from ..launching.front_end_copy import adds_option, quotes
from ..launching.own_options import OF_DEEPSPEED

_PACKAGE: Final = "megatron"
#: Where Megatron's own parser is, from the folder that holds the package.
_PARSERS: Final = ("megatron/training/arguments.py", "megatron/arguments.py")
#: An option's name and type in a call of add_argument.
_TYPED: Final = lazy_pattern(r"""["'](--[\w-]{1,80})["'],(?:\s*dest=["']\w+["'],)?\s*type=(\w+)""")
_REQUIRED: Final = "required_args = ["
#: An option that the parser wants absent.
_IS_NONE: Final = lazy_pattern(r"^[ \t]*assert args\.(\w+) is None\b", re.MULTILINE)
#: An option that the parser looks at.
_JUDGED: Final = lazy_pattern(r"\bargs\.(\w+)")
#: A program that takes options which its parser doesn't know.
_LENIENT: Final = lazy_pattern(r"ignore_unknown_args\s*=\s*True|parse_known_args\(")
#: How a program starts Megatron, whose parser then checks the arguments; and what sets some of them
#: before it does.
_STARTS: Final = lazy_pattern(r"^[ \t]*(?:initialize_megatron|pretrain)\(", re.MULTILINE)
_SETS: Final = lazy_pattern(
    r"external_args|parse_args\(|use_checkpoint_args|load_args_from_checkpoint"
)
#: Functions that are handed the parser, and those of them whose options are known, written in the
#: program or by others.
_HANDED: Final = lazy_pattern(r"^[ \t]+(?:\w+\s*=\s*)?([\w.]+)\(\s*parser\s*[,)]", re.MULTILINE)
_KNOWN_TO_ADD: Final = ("extra_args_provider", "deepspeed.add_config_arguments")
_SLIP: Final = 0.88  # likeness of names of which one is taken for the other


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """The strings in a program's Python, options and choices among them, and whether these are all
    that the program reads.
    """

    strings: frozenset[str] = frozenset()
    #: the file of its Megatron's parser, where every option is written there or in it
    parser: str | None = None
    #: by option of its Megatron's parser: `int`, `float`, ...
    types: Mapping[str, str] = field(default_factory=dict)
    #: whether that parser says of options that they are gone; True where it isn't there
    refuses_removed: bool = True
    #: the options that its Megatron's parser says must be given
    required: frozenset[str] = frozenset()
    #: whether its Megatron's parser makes the pipeline fit on the GPUs, as older ones do
    cuts_pipeline: bool = False
    #: names of options that it sets, or its Megatron's parser wants absent
    left_out: frozenset[str] = frozenset()
    #: names of options that its Megatron's parser looks at; None without one
    judged: frozenset[str] | None = None
    #: whether its text or its parser is Megatron's; True where it isn't there
    of_megatron: bool = True
    #: whether it hands all that it is given to its Megatron's parser, which checks it
    is_checked: bool = False
    #: the copy of Megatron that the repository has: the package's folder
    copy: Path | None = None

    def copy_has(self, option: str, choice: object = None) -> bool:
        """Return whether the copy of Megatron in the repository has an option, or its choice.

        Its own options and choices count, whatever release it says that it is.
        """
        if self.copy is None:
            return False
        return adds_option(self.copy, option) and (choice is None or quotes(self.copy, str(choice)))

    def lacks(self, option: str) -> bool:
        """Return whether an option is surely none of the program's.

        Its name is written nowhere, nor one that it may be short for.
        """
        beginning = option.partition("=")[0]
        if self.parser is None or beginning in self.strings or beginning in OF_DEEPSPEED:
            return False
        after = bisect_left(self._sorted, beginning)
        return not (after < len(self._sorted) and self._sorted[after].startswith(beginning))

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.strings)

    def near(self, option: str) -> str | None:
        """The option of the program's that is spelt like this one."""
        options = tuple(string for string in self._sorted if string.startswith("--"))
        return most_like(option, options, _SLIP)


class _ParserSays(NamedTuple):
    """What the text of a Megatron's parser says; as `ProgramOptions` has it."""

    others_add: bool  #: whether functions elsewhere are handed the parser
    types: Mapping[str, str]
    required: frozenset[str]
    refuses_removed: bool
    cuts_pipeline: bool
    wants_none: frozenset[str]  #: names of options
    judged: frozenset[str] | None


@lru_cache(maxsize=4)  # all programs of a repository have the same few parsers
def _parser_says(text: str) -> _ParserSays:
    handed_to = {name for name in _HANDED.findall(text) if f"def {name}(" not in text}
    listed, closing, _ = text.partition(_REQUIRED)[2].partition("]")
    return _ParserSays(
        others_add=not handed_to.issubset(_KNOWN_TO_ADD),
        types=dict(_TYPED.findall(text)),
        required=frozenset(STRING.findall(listed)) if closing else frozenset(),
        refuses_removed=not text or "no longer valid" in text,
        cuts_pipeline="args.pipeline_model_parallel_size = min(" in text,
        wants_none=frozenset(_IS_NONE.findall(text)),
        judged=frozenset(_JUDGED.findall(text)) if text else None,
    )


@until_next_check(64)
def options_beside(program: Path | None) -> ProgramOptions:
    """What is written in a program, and in the Python that it imports and that lies beside it."""
    if program is None:
        return ProgramOptions()
    folder = program.parent
    text = text_around(program, folder)
    parser = _parser_above(program)
    beside = python_beside(program, *([parser] if parser else []))
    says = _parser_says(text_around(parser, folder) if parser else "")
    is_whole = parser is not None and not says.others_add and not _LENIENT.search(text)

    return ProgramOptions(
        strings=frozenset[str]().union(*map(strings_in, beside)),
        parser=_shown(parser) if parser and is_whole else None,
        types=says.types,
        required=says.required,
        refuses_removed=says.refuses_removed,
        cuts_pipeline=says.cuts_pipeline,
        left_out=says.wants_none.union(STRING.findall(text)),
        is_checked=is_whole and bool(_STARTS.search(text)) and not _SETS.search(text),
        judged=says.judged,
        copy=_package_of(parser) if parser else None,
        of_megatron=parser is not None or any(map(_speaks_of_megatron, beside)),
    )


def copy_above(holder: str) -> Path | None:
    """The package of the copy of Megatron that a file is in."""
    parser = _parser_above(Path(holder))
    return _package_of(parser) if parser is not None else None


def _parser_above(file: Path) -> Path | None:
    """The parser of the Megatron that a folder above a file holds."""
    places = (base / name for base in folders_above(file) for name in _PARSERS)
    return next((place for place in places if is_readable(place, file.parent)), None)


def _package_of(parser: Path) -> Path:
    """The folder of the package that has a parser: `megatron`."""
    return next(folder for folder in parser.parents if folder.name == _PACKAGE)


def _shown(file: Path) -> str:
    """A file from the working folder, if it is below that; else its whole path."""
    relative = Path(os.path.relpath(file)).as_posix()
    return file.as_posix() if relative.startswith("..") else relative


@until_next_check(1024)
def _speaks_of_megatron(path: Path) -> bool:
    """Return whether a file, which many programs may import, speaks of Megatron."""
    return "megatron" in text_around(path, path.parent).lower()
