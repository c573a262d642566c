"""Releases of programs that a repository names: pins, images, carried copies, prose, and imports of
its programs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

from ..dataclass import dataclass
from ..findings import Version
from ..job.releases import NEWEST
from ..patterns import lazy_pattern
from ..resources import read_text
from ..text.around import (
    folders_above,
    is_named_in,
    is_readable,
    matching,
    names_in,
    text_around,
    until_next_check,
)
from .pins import (
    LAST_OF_SERIES,
    NUMBER,
    OF_MONTHS,
    bounds,
    images,
    is_beyond,
    numbers,
    pins,
    prose,
    sources,
    unreleased_suffix,
)

_SHOWN: Final = {
    "deepspeed": "DeepSpeed",
    "transformers": "transformers",
    "megatron-core": "Megatron-LM",
    "megatron-bridge": "Megatron-Bridge",
    "trl": "TRL",
    "ms-swift": "ms-swift",
    "verl": "verl",
    "accelerate": "accelerate",
    "torch": "PyTorch",
}
#: Keys of the job spec that name the release for which files are written.
_SPEC_KEYS: Final = {
    "deepspeed": "deepspeed_version",
    "transformers": "transformers_version",
    "megatron-core": "megatron_version",
    "megatron-bridge": "megatron_bridge_version",
}
#: A command that installs packages.
_INSTALLS: Final = lazy_pattern(r"\b(?:pip3?|conda|mamba|poetry)\s+(?:install|add)\b")
#: What a text that may name a release of a program holds, in lower case.
_WORDS: Final = {"megatron-core": "megatron"}
_ENVIRONMENTS: Final = (
    "requirements/",
    "docker/",
    "dockerfiles/",
    ".docker/",
    "containers/",
    "environment/",
    "environments/",
    "env/",
    ".devcontainer/",
)
#: A folder itself, those of environments in it, and theirs of each image.
_FOLDERS: Final = ("", *_ENVIRONMENTS, *(f"{name}*/" for name in _ENVIRONMENTS))
#: Of folders beside the one that a file is in: they may be those of its environment.
_PINNED_BESIDE: Final = (
    "*/README*",
    "*/*requirement*.txt",
    "*/*constraints*.txt",
    "*/pyproject.toml",
    "*/setup.py",
    "*/*.lock",
    "*/*env*.y*ml",
    "*/Dockerfile*",
    "*/*env*.sh",
    "*/*install*.sh",
    "*/*setup*.sh",
)
_REQUIRED_BELOW: Final = ("*/*requirement*.txt",)
_PINNED_IN: Final = (
    "*requirement*.txt",
    "requirement*.in",
    "*constraints*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "pixi.toml",
    "*.lock",
    "*env*.y*ml",
    "conda*.y*ml",
    "Dockerfile*",
    "*.[Dd]ockerfile",
    "*.def",
    "[Rr][Ee][Aa][Dd][Mm][Ee]*",
    "INSTALL*",
    "requirements/*.txt",
    "*.sh",  # those that install packages
)
#: Files of prose, which may name several releases.
_TOLD_IN: Final = lazy_pattern(r"[Rr][Ee][Aa][Dd][Mm][Ee]|INSTALL(?!.*\.sh$)")
#: `pip install -r deploy/requirements.txt`, and a line `-r base.txt`
_INSTALLED_FROM: Final = lazy_pattern(r"(?:^|\s)(?:-r|--requirement)[\s=]+([\w][\w./-]*\.txt)\b")
_MOST_FILES: Final = 40  #: of a folder
#: Characters of a file that is parsed, which takes 0.4 GB at worst; Megatron's own parser has half
#: of them.
_MOST_PARSED: Final = 400_000
_MOST_PROGRAMS: Final = 400  #: Python files of a folder and its packages
#: Megatron-Core's own: megatron/core/package_info.py @ core_v0.16.1.
_OF_PACKAGE: Final = lazy_pattern(
    r"^MAJOR = ([0-9]{1,4})\nMINOR = ([0-9]{1,4})\nPATCH = ([0-9]{1,4})$"
    r"(?:\nPRE_RELEASE = [\"'](\w{0,20}))?",
    re.MULTILINE,
)
#: A copy of the program that the repository carries: what is in it, and where its version is.
COPIES: Final = {
    "deepspeed": ("deepspeed/runtime/config.py", "version.txt"),
    "transformers": ("src/transformers/training_args.py", "src/transformers/__init__.py"),
    "megatron-core": ("megatron/training/arguments.py", "megatron/core/package_info.py"),
    "megatron-bridge": (
        "src/megatron/bridge/training/config.py",
        "src/megatron/bridge/package_info.py",
    ),
    "trl": ("trl/trainer/sft_config.py", "VERSION"),
    "ms-swift": ("swift/version.py", "swift/version.py"),
    "verl": ("verl/trainer/main_ppo.py", "verl/version/version"),
    "accelerate": ("src/accelerate/accelerator.py", "src/accelerate/__init__.py"),
    "torch": ("torch/_utils_internal.py", "version.txt"),
}
#: Programs whose copies are others' files, of which nothing is said to who carries them.
_CARRIED: Final = ("deepspeed", "transformers")
#: Their folders. Source: deepspeedai/DeepSpeed @ 0.19.8, huggingface/transformers @ 5.23, 4.54 and
#: 4.30
_OF_RELEASES: Final = frozenset(
    {
        "accelerator",
        "azure",
        "benchmark",
        "benchmarks",
        "bin",
        "blogs",
        "ci",
        "csrc",
        "deepspeed",
        "docker",
        "docs",
        "examples",
        "notebooks",
        "op_builder",
        "release",
        "requirements",
        "scripts",
        "src",
        "templates",
        "tests",
        "utils",
    }
)
#: Programs of which files are not judged by the newest release where a newer one is pinned.
_NEWER_TOO: Final = ("megatron-bridge",)
#: Owners on GitHub; a build from elsewhere has tags and keys of its own.
_OWNERS: Final = {
    "deepspeed": "microsoft|deepspeedai",
    "transformers": "huggingface",
    "megatron-core": "NVIDIA",
    "megatron-bridge": "NVIDIA-NeMo",
    "trl": "huggingface",
    "ms-swift": "modelscope",
    "verl": "verl-project|volcengine",
    "accelerate": "huggingface",
    "torch": "pytorch",
}


class _Mention(NamedTuple):
    """A place that names a version; mentions are ordered by version first."""

    version: Version
    path: Path
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The release of a program that a file is judged by, and the place that names it."""

    program: str  #: a name of `NEWEST`: `deepspeed`, `transformers`, `torch`
    version: Version
    where: str = ""  #: `requirements.txt:11`; empty: nothing names one
    named: str = ""  #: as it is named, where that isn't by its number: `0.19.6 or older`
    #: False for prose, which may be of another, bounds that imports give, and what isn't known
    exact: bool = True
    #: False for forks, and for commits, branches and copies of a repository: what depends on the
    #: release isn't certain then, and `version` stands for the newest that it may be
    is_known: bool = True
    #: whether dsgen's plan.json names it, which may not be what is installed
    planned: bool = False

    def __str__(self) -> str:
        """`DeepSpeed 0.9.5 (requirements.txt:11)`."""
        text = f"{_SHOWN[self.program]} {self.named or '.'.join(map(str, self.version))}"
        if self.planned and self.program in _SPEC_KEYS:  # what a reader can change
            return f"{text} ({_SPEC_KEYS[self.program]} of the job)"
        return f"{text} ({self.where})" if self.where else text

    def certain(self, holds: Callable[[Version], bool]) -> bool:
        """Return whether what holds for the release does so for all that it may be."""
        is_either = self.exact or (self.is_known and holds(NEWEST[self.program]))
        return holds(self.version) and is_either

    def is_surely_older(self, first: Version) -> bool:
        """Return whether it is older than another, whatever it may be.

        A bound and a version in development are told by the newest that they may be.
        """
        return self.version < first and (self.exact or bool(self.named))


def newest(program: str) -> Release:
    """The release by which a file is judged where nothing names one."""
    return Release(program=program, version=NEWEST[program])


def release_of(program: str, holder: str) -> Release | None:
    """The release that the nearest folder names, from the file `holder` up; None where none
    does.

    What programs import says less than what names a release: it is asked last, in every folder.
    """
    folders = tuple(folders_above(holder))
    for folder in folders:
        release = _named_in(program, folder)
        if release is None and folder == folders[0]:
            release = _pinned_below(program, folder)
        if release is not None:
            return release
    beside = [_pinned_below(program, folder, _PINNED_BESIDE) for folder in folders[-1:]]
    imported = (_imported_in(program, folder) for folder in folders)
    return next(filter(None, chain(beside, imported)), None)


def is_of_copy(holder: str) -> bool:
    """Return whether a file belongs to a copy of DeepSpeed or transformers that a project carries:
    others wrote it.

    False for a file that the user named, itself or by a folder of the copy, and for one in a folder
    that the program's own releases lack: the project added it.
    """
    inner_folders = list(folders_above(holder))[:-1]  # the project itself may be that program
    path = Path(holder).absolute()
    return any(
        path.relative_to(folder).parts[0] in _OF_RELEASES and not is_named_in(folder, path)
        for folder in inner_folders
        if _is_copy(folder)
    )


def release_in_image(program: str, path: str, text: str) -> Release | None:
    """The release in the newest image that a text names; None where it names none.

    `path` is the text's file.
    """
    newest_image = max(images(program, text), default=None)
    if newest_image is None:
        return None
    version, line = newest_image
    release = _release(program, version, Path(path), line)
    months = OF_MONTHS.get(program)
    # The tag of an image that is newer than the table: its month is all that is known.
    is_month = months is not None and version not in months.values()
    return replace(release, named="of {}.{:02}".format(*version)) if is_month else release


@until_next_check(1024)
def installed_by(program: str, path: str, text: str) -> Release | None:
    """The newest release that a script pins as it installs it before it trains; None: none."""
    if program not in text or not _INSTALLS.search(text):
        return None
    newest_pin = max(pins(program, text), default=None)
    if newest_pin is None:
        return _taken_from(program, {Path(path): text})
    version, line = newest_pin
    return _release(program, version, Path(path), line)


@until_next_check(1024)
def _is_copy(folder: Path) -> bool:
    return any(is_readable(folder / COPIES[program][0], folder) for program in _CARRIED)


@until_next_check(1024)
def _named_in(program: str, folder: Path) -> Release | None:
    """The release that a folder names: by a plan, a copy of the program, a fork or other files."""
    named = _planned_in(program, folder) or _copied_in(program, folder)
    if named is not None:
        return named
    texts = _texts(folder)
    return _forked_in(program, texts) or _told_in(program, folder, texts)


def _planned_in(program: str, folder: Path) -> Release | None:
    """The release that dsgen's own plan in a folder was written for."""
    plan = folder / "plan.json"
    text = text_around(plan, folder)
    written = re.search(rf'"written_for": \{{[^}}]*"{_SHOWN[program]}": "{NUMBER}"', text)
    if written is None:
        return None
    named = _release(program, numbers(written[1]), plan, _line(text, written))
    return replace(named, planned=True)


def _copied_in(program: str, folder: Path) -> Release | None:
    """The release of a copy of the program that is a folder, or lies in one under its name."""
    for home in (folder, folder / program, folder / _SHOWN[program]):
        sign, version_file = (home / name for name in COPIES[program])
        if not is_readable(sign, folder):
            continue
        text = text_around(version_file, folder)
        version = re.search(rf"__version__\s*=\s*[\"']{NUMBER}", text) or re.match(NUMBER, text)
        if version is not None:
            suffix = unreleased_suffix(text, version.end(1))
            return _developed(program, version[1], suffix, version_file)
        parts = _OF_PACKAGE.search(text)
        if parts is not None:
            *number, suffix = parts.groups()
            return _developed(program, ".".join(number), suffix or "", version_file)
        return _unknown(program, sign, 1, "of others")
    return None


def _developed(program: str, number: str, suffix: str, path: Path) -> Release:
    """The release that a copy says it is, or is on its way to by what stands behind the number."""
    version = numbers(number)
    if not suffix:
        return _release(program, version, path, 1)
    # What the release will refuse may still be taken, and the other way round.
    nearest = _release(program, version if is_beyond(suffix) else _before(version), path, 1)
    return replace(nearest, named=f"{number}{suffix}", exact=False)


def _forked_in(program: str, texts: Mapping[Path, str]) -> Release | None:
    """The fork of the program that texts install, by a repository that isn't its owner's."""
    elsewhere = rf"git\+https?://(?!github\.com/(?:{_OWNERS[program]})/)\S*/{program}\b"
    for path, text in texts.items():
        fork = re.search(elsewhere, text, re.IGNORECASE) if "git+" in text else None
        if fork is not None:
            return _unknown(program, path, _line(text, fork), "of others")
    return None


def _told_in(program: str, folder: Path, texts: Mapping[Path, str]) -> Release | None:
    """The release that pins, images, bounds or prose tell; the folder's own files come first.

    One that isn't known, as what a commit is, goes before bounds and prose.
    """
    word = _WORDS.get(program, program)
    for is_inner in (False, True):
        texts_there = {
            path: text for path, text in texts.items() if (path.parent != folder) == is_inner
        }
        unknown = _taken_from(program, texts_there)
        for versions_in in (pins, images, bounds, prose):
            if versions_in is bounds and unknown is not None:
                return unknown
            mentions = [
                _Mention(version, path, line)
                for path, text in texts_there.items()
                # An image may have another name: nvidia/nemo for Megatron-Bridge.
                if versions_in is images or word in text.lower()
                for version, line in versions_in(program, text)
            ]
            if not (versions_in is pins and program in _NEWER_TOO):
                mentions = [each for each in mentions if each.version <= NEWEST[program]]
            if not mentions:
                continue
            release, is_sure = _of_several(program, mentions)
            exact = versions_in in (pins, images) and is_sure and unknown is None
            exact &= not any(_is_of_inner_project(each.path, folder) for each in mentions)
            named = _older(release) if versions_in is bounds else ""
            return replace(release, exact=exact, named=named)
    return None


def _is_of_inner_project(path: Path, folder: Path) -> bool:
    """Whether a file that a folder's files install from lies with programs in a folder below.

    It is theirs, and not surely that of a launch elsewhere.
    """
    inner = path.relative_to(folder).parts[:-1]
    if not inner or f"{inner[0]}/" in _ENVIRONMENTS:
        return False
    homes = (folder.joinpath(*inner[:depth]) for depth in range(1, len(inner) + 1))
    return any(next(matching("*.py", home, folder), None) is not None for home in homes)


def _taken_from(program: str, texts: Mapping[Path, str]) -> Release | None:
    """The release, not known by its number, that texts install from elsewhere than an index."""
    for path, text in texts.items():
        source = next(sources(program, text), None)
        if source is not None:
            origin, line = source
            return _unknown(program, path, line, f"from {origin}")
    return None


def _of_several(program: str, mentions: Sequence[_Mention]) -> tuple[Release, bool]:
    """The release of several that files name, and whether all of them agree on it.

    Of several pins it is the newest. Prose that names several says which works, and which doesn't:
    there it is the oldest.
    """
    in_prose = [each for each in mentions if _TOLD_IN.match(each.path.name)]
    installed = [each for each in mentions if not _TOLD_IN.match(each.path.name)]
    is_prose_on_several = not installed and len({each.version for each in mentions}) > 1
    chosen = min(mentions) if is_prose_on_several else max(installed or mentions)
    release = _release(program, *chosen)

    # A README that installs another release may be the newer of the two files.
    minor_versions = {each.version[:2] for each in in_prose}
    # So may one of two environments. A lock file has what a range became.
    if not any(each.path.suffix == ".lock" for each in installed):
        newest_by_path = {each.path: each.version for each in sorted(installed)}
        minor_versions |= {version[:2] for version in newest_by_path.values()}
    agree = not installed or minor_versions <= {release.version[:2]}
    return release, agree and not is_prose_on_several


@until_next_check(1024)
def _pinned_below(
    program: str, folder: Path, patterns: tuple[str, ...] = _REQUIRED_BELOW
) -> Release | None:
    """The release that all requirements in the folders within a folder pin, or the newest of what
    all files pin that `patterns` name; None where there are none, or requirements pin several.

    It isn't exact: a config may lie above the program that reads it, and above other programs.
    """
    files = chain.from_iterable(matching(pattern, folder, folder) for pattern in patterns)
    texts = {path: text_around(path, folder) for path in islice(files, _MOST_FILES)}
    pinned = [
        _Mention(version, path, line)
        for path, text in texts.items()
        for version, line in pins(program, text)
    ]
    if not pinned:
        return _taken_from(program, texts)
    if patterns is _REQUIRED_BELOW and len({pin.version for pin in pinned}) != 1:
        return None  # the folders above are asked
    return replace(_release(program, *max(pinned)), exact=False)


def _before(version: Version) -> Version:
    """The last version before one: 0.6.99 before 0.7.0."""
    *leading, last = version
    if last > 0 or not leading:
        return (*leading, last - 1)
    return (*_before(tuple(leading)), LAST_OF_SERIES)


def _older(release: Release) -> str:
    """A bound as one says it: `0.14.5 or older`, `below 0.15`."""
    *leading, patch = release.version
    if patch != LAST_OF_SERIES:
        return f"{'.'.join(map(str, release.version))} or older"
    *above, minor = leading
    return f"below {'.'.join(map(str, (*above, minor + 1)))}"


def _release(program: str, version: Version, path: Path, line: int) -> Release:
    shown = os.path.relpath(path)
    where = f"{path.name if shown.startswith('..') else shown}:{line}"
    return Release(program=program, version=version, where=where)


def _unknown(program: str, path: Path, line: int, named: str) -> Release:
    release = _release(program, NEWEST[program], path, line)
    return replace(release, named=named, exact=False, is_known=False)


@cache
def _gone(program: str) -> Mapping[str, Version]:
    """The modules that the newest release no longer has, and the last release seen with each."""
    table = json.loads(read_text(__package__, "gone_modules.json"))
    return {module: numbers(last) for module, last in table.get(program, {}).items()}


@until_next_check(1024)
def _imported_in(program: str, folder: Path) -> Release | None:
    """The last release that has what the programs of a folder and its packages import; None where
    the newest has it.
    """
    if not _gone(program):
        return None
    # To look for these first is faster than to parse every file.
    imports_program = re.compile(rf"^(?:from|import)\s+{program}\.", re.MULTILINE)
    gone_names = {module.rpartition(".")[2] for module in _gone(program)}
    packages = (path.parent for path in matching("*/__init__.py", folder, folder))
    python_files = chain(
        matching("*.py", folder, folder),
        chain.from_iterable(sorted(package.rglob("*.py")) for package in packages),
    )
    mentions = list[_Mention]()
    for path in islice(python_files, _MOST_PROGRAMS):
        text = text_around(path, folder)
        if imports_program.search(text) and any(name in text for name in gone_names):
            mentions += [_Mention(last, path, line) for last, line in _imports(program, text)]
    if not mentions:
        return None
    release = _release(program, *min(mentions))
    return replace(release, named=_older(release), exact=False)


def _imports(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """The last release with each module that a program imports as it starts, no matter what."""
    gone = _gone(program)
    for node in parsed(text).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            parts = f"{prefix}{alias.name}".split(".")
            # `a.b.c` needs a.b and a.b.c; from `from a.b import c`, c may be a module or not.
            modules = (".".join(parts[:length]) for length in range(2, len(parts) + 1))
            yield from ((gone[module], node.lineno) for module in modules if module in gone)


def parsed(text: str) -> ast.Module:
    """A Python file; an empty one where it can't be parsed, or is too long to."""
    try:
        with warnings.catch_warnings():  # of what an old file writes
            warnings.simplefilter("ignore")
            # The name is a file: what is no Python makes it look there for the line.
            return ast.parse(text if len(text) < _MOST_PARSED else "", os.devnull)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


@until_next_check(256)
def _texts(folder: Path) -> Mapping[Path, str]:
    """The files of a folder that may name releases, and those that they install from."""
    entries = {"", *names_in(str(folder), str(folder))}
    may_pin = (
        path
        for inner in _FOLDERS
        if inner.partition("/")[0] in entries
        for name in _PINNED_IN
        for path in matching(inner + name, folder, folder)
    )
    paths = [
        path
        for path in dict.fromkeys(may_pin)
        if path.suffix != ".sh" or _INSTALLS.search(text_around(path, folder))
    ]
    texts = dict[Path, str]()
    for path in islice(paths, _MOST_FILES):  # the list grows by the files that these install from
        texts[path] = text_around(path, folder)
        names = islice(dict.fromkeys(_INSTALLED_FROM.findall(texts[path])), _MOST_FILES)
        installed_from = (path.parent / name for name in names)
        paths += (
            further
            for further in installed_from
            if further not in paths and is_readable(further, folder)
        )
    return texts


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1
