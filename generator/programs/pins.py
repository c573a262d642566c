"""How files name the release of a program: pins, bounds, images, prose, and sources of which the
release isn't known, such as a commit of its repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ..findings import Version
from ..numerals import whole
from ..patterns import lazy_pattern

#: Names under which package managers have a program, as a pattern; else its own.
_PACKAGES: Final = {"torch": "(?:py)?torch"}
#: Names of repositories, where they aren't those of the packages.
_REPOSITORIES: Final = {"megatron-core": "Megatron-LM", "torch": "pytorch"}
#: Stands for the last patch or minor version of a series, which a bound doesn't name: below 0.15 is
#: up to 0.14.99.
LAST_OF_SERIES: Final = 99
NUMBER: Final = r"v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})"
#: Behind a number in prose: no bound, such as `0.9.5+` and `0.9.5 or later`.
_NO_BOUND: Final = (
    r"(?!\s*(?:\+|or\s+(?:later|newer|above|higher|greater)|and\s+(?:later|newer|above)))"
)
#: Images whose tags have the release: deepspeed/deepspeed:v072_torch112_cu117,
#: huggingface/transformers-gpu:4.35.2, pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel.
_IMAGES: Final = {
    "deepspeed": r"\bdeepspeed/deepspeed:v([0-9])([0-9])([0-9])(?![0-9])",
    "transformers": r"\bhuggingface/transformers-[\w-]+:([0-9]+)\.([0-9]+)\.([0-9]+)\b",
    "torch": r"\bpytorch/pytorch:([0-9])\.([0-9]{1,2})\.([0-9]{1,2})\b",
    # a tag or a branch of its repository, as an image or a script checks it out
    "megatron-core": r"\bcore_[vr]([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\b",
    "megatron-bridge": r"\bnvidia/nemo:([0-9]{2})\.([0-9]{2})\b",
}
#: Releases in images whose tags are months. Source: NVIDIA-NeMo/Megatron-Bridge
#: docs/releases/software-versions.md @ 067f987df
OF_MONTHS: Final[Mapping[str, Mapping[Version, Version]]] = {
    "megatron-bridge": {(26, 2): (0, 3, 0), (26, 4): (0, 4, 0), (26, 6): (0, 5, 0)},
}
#: Branches that have the newest, which an installation takes anew.
_NEWEST_BRANCHES: Final = frozenset({"main", "master", "HEAD", "trunk"})
#: A tag of a release, at the beginning of a ref of a repository.
_TAG: Final = lazy_pattern(rf"(?:refs/tags/)?(?:release[-/]?)?{NUMBER}", re.IGNORECASE)
#: Commands behind `git clone` that take another ref of the repository.
_CHECKED_OUT: Final = lazy_pattern(
    r"\bgit\s{1,9}(?:checkout|reset\s{1,9}--hard)\s{1,9}([\w./-]{1,100})"
)
#: A key of a table in braces, with its value.
_KEY: Final = lazy_pattern(r"\b(\w{1,40})[\"']?\s{0,9}=\s{0,9}[\"']([^\"'\n]{1,200})")
_CLONE: Final = lazy_pattern(r"\bgit\s{1,9}clone\b")
_BRANCH: Final = lazy_pattern(r"\s(?:-b|--branch)[\s=]{1,9}([\w./-]{1,100})")
_COMMIT: Final = lazy_pattern(r"[0-9a-f]{12,40}")
#: Behind a number: what comes before its release (`0.16.0rc0`, `2.1.0a0`, `4.47.0.dev0`), and a
#: commit beyond it (`0.15.0+g1a2b3c4`), but no build of it, such as `2.5.1+cu121`.
_BEFORE_RELEASE: Final = lazy_pattern(
    r"[-._]?(?:dev|rc|alpha|beta|a|b|pre|preview)(?:[-._]?[0-9]{1,12})?(?![A-Za-z])"
)
_BEYOND_RELEASE: Final = lazy_pattern(r"(?:\.post[0-9]{1,9}\.dev[0-9]{0,9})?\+g?[0-9a-f]{7,40}\b")
#: Characters behind a clone in which its ref is checked out.
_MOST_BEHIND: Final = 400


class _Pin(NamedTuple):
    """A number to which a text pins a program."""

    number: str
    suffix: str  #: what makes it no release; empty for a release
    line: int


def pins(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`deepspeed==0.9.5`, `deepspeed = "^0.9.5"`, `deepspeed.git@v0.9.5`, and a lock file's
    package; no release that is still to come.
    """
    yield from ((numbers(pin.number), pin.line) for pin in _pins(program, text) if not pin.suffix)
    if program == "megatron-core":
        return  # its tags are among the images
    for origin, line in _origins(program, text):
        tag = _TAG.match(origin)
        if tag is not None and not unreleased_suffix(origin, tag.end(1)):
            yield numbers(tag[1]), line


def unreleased_suffix(text: str, end: int) -> str:
    """What makes a number that ends at an offset no release: `rc0`, `.dev0`, a commit beyond it."""
    suffix = _BEFORE_RELEASE.match(text, end) or _BEYOND_RELEASE.match(text, end)
    return suffix[0] if suffix is not None else ""


def is_beyond(suffix: str) -> bool:
    """Whether what makes a number no release is a commit beyond that."""
    return "+" in suffix


def _package(program: str) -> str:
    """A pattern of the name by which package managers have a program."""
    return rf"(?<![\w/-]){_PACKAGES.get(program, program)}"


def _pins(program: str, text: str) -> Iterator[_Pin]:
    """The pins of a program, to releases and to what comes before or behind these."""
    name = _package(program)
    for pattern in (
        # `deepspeed==0.9.5`, `deepspeed[autotuning]~=0.9.5`
        rf"{name}(?:\[[\w,-]*\])?[\"']?\s*(?:={{1,3}}|~=)\s*{NUMBER}",
        # `deepspeed = "^0.9.5"`, `deepspeed = {extras = ["dev"], version = "0.9.5"}`
        rf"{name}[\"']?\s*[=:]\s*(?:\{{[^}}\n]{{0,400}}?\bversion[\"']?\s*[=:]\s*)?[\"']"
        rf"(?:==?|~=?|\^)?\s*{NUMBER}",
        # `git+https://github.com/deepspeedai/deepspeed.git@v0.9.5`
        rf"/{program}(?:\.git)?@{NUMBER}",
        # `https://example.org/deepspeed-0.9.5-py3-none-any.whl`
        rf"/{program}-{NUMBER}[\w.%+-]{{0,100}}\.(?:whl|zip|tar\.gz)\b",
        # a lock file's package
        rf"name = \"{program}\"\s+version = \"{NUMBER}",
    ):
        for match, line in _uncommented(pattern, text):
            yield _Pin(match[1], unreleased_suffix(text, match.end(1)), line)


def sources(program: str, text: str) -> Iterator[tuple[str, int]]:
    """What a program is installed from where that isn't a release: a commit or a branch of its
    repository, an archive of it, a path, a version before its release.
    """
    for pin in _pins(program, text):
        if pin.suffix:
            yield f"{pin.number}{pin.suffix}", pin.line
    for origin, line in _origins(program, text):
        is_release = re.search(NUMBER, origin) is not None
        if not is_release and origin not in _NEWEST_BRANCHES:
            yield origin[:7] if _COMMIT.fullmatch(origin) else origin, line  # as git shortens it


def _origins(program: str, text: str) -> Iterator[tuple[str, int]]:
    """From what a text takes a program where that is no index of packages: a tag, a branch or a
    commit of its repository, an archive, a path.
    """
    repository = _REPOSITORIES.get(program, program)
    if repository.lower() not in text.lower():
        return
    name = rf"{_package(program)}(?:\[[\w,-]{{0,80}}\])?"
    folders = r"[\"']?(?:[\w.~-]{1,80}/){0,8}"
    end_of_path = r"/?(?=[\s\"';&\[]|$)"
    for pattern in (
        # `git+https://github.com/huggingface/transformers.git@cae78c46`
        rf"\bgit\+[^\s\"'#]{{1,200}}?/{repository}(?:\.git)?@([\w./-]{{1,100}})",
        # `https://github.com/huggingface/transformers/archive/cae78c46.zip`
        rf"/{repository}/(?:archive|tarball|zipball)/(?:refs/heads/)?"
        r"([\w./-]{1,100}?)(?:\.zip|\.tar\.gz)?(?![\w./-])",
        # `transformers @ file:///opt/transformers`
        rf"{name}\s{{0,9}}@\s{{0,9}}((?:file:|\.{{0,2}}/)[^\s\"',]{{1,200}})",
        # `pip install -e third_party/transformers`, `pip install ./transformers`
        rf"(?:\s-e|--editable)[\s=]{{1,9}}({folders}{repository}){end_of_path}",
        rf"\bpip3?\s{{1,9}}install\s{{1,9}}([\"']?\.{{0,2}}/{folders}{repository}){end_of_path}",
    ):
        yield from ((match[1].strip("\"'"), line) for match, line in _uncommented(pattern, text))
    yield from _in_tables(name, text)
    yield from _of_clones(repository, text)


def _in_tables(name: str, text: str) -> Iterator[tuple[str, int]]:
    """`transformers = {git = "https://...", rev = "cae78c46"}`, as Poetry and uv have it."""
    table = rf"{name}[\"']?\s{{0,9}}=\s{{0,9}}\{{([^}}\n]{{1,400}})\}}"
    for match, line in _uncommented(table, text):
        keys = dict(_KEY.findall(match[1]))
        for key in ("rev", "tag", "branch") if "git" in keys else ("path", "url", "file"):
            if key in keys:
                yield keys[key], line


def _of_clones(repository: str, text: str) -> Iterator[tuple[str, int]]:
    """The refs that a text checks out of clones of a repository."""
    clone = rf"\bgit\s{{1,9}}clone\b([^\n;&]{{0,200}}?)/{repository}(?:\.git)?(?![\w-])"
    for match, line in _uncommented(clone, text):
        end = match.end() + _MOST_BEHIND
        following = _CLONE.search(text, match.end(), end)
        ref = (
            _BRANCH.search(match[1])
            or _BRANCH.match(text, match.end(), end)
            or _CHECKED_OUT.search(text, match.end(), following.start() if following else end)
        )
        if ref is not None:
            yield ref[1], line


def bounds(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`deepspeed<=0.9.5`, `deepspeed>=0.9,<0.15`."""
    bounded = (
        rf"{_package(program)}(?:\[[\w,-]*\])?[\"']?\s*"
        r"(?:(?:[><~]=?|!=)\s*[0-9.*]+\s*,\s*){0,4}"
    )
    up_to = rf"{bounded}<=\s*{NUMBER}"
    for match, line in _uncommented(up_to, text):
        yield numbers(match[1]), line
    below = rf"{bounded}<\s*([0-9]{{1,4}}(?:\.[1-9][0-9]{{0,3}})?)(?:\.0)*(?![.0-9])"
    for match, line in _uncommented(below, text):
        *above, excluded = numbers(match[1])
        if excluded:
            yield (*above, excluded - 1, LAST_OF_SERIES), line


def _uncommented(pattern: str, text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The matches of a pattern that are in no comment, with their lines."""
    matches = _with_lines(pattern, text)
    return ((match, line) for match, line, is_comment in matches if not is_comment)


def _with_lines(pattern: str, text: str) -> Iterator[tuple[re.Match[str], int, bool]]:
    """The matches, in whatever case, with their lines, and whether a comment begins before them.

    Each looks only at what lies behind the one before: the time doesn't grow with their square.
    """
    line, previous_start, is_comment = 1, 0, False
    for match in re.finditer(pattern, text, re.IGNORECASE):
        between = text[previous_start : match.start()]
        behind_newline = between.rpartition("\n")[2]
        is_same_line = len(behind_newline) == len(between)
        behind_newline = behind_newline.removeprefix("#SBATCH ")  # no comment to Slurm
        is_comment = "#" in behind_newline or (is_same_line and is_comment)
        line += between.count("\n")
        previous_start = match.start()
        yield match, line, is_comment


def images(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`FROM deepspeed/deepspeed:v072_torch112_cu117`: images and tags that have the release."""
    months = OF_MONTHS.get(program)
    pattern = _IMAGES.get(program)
    if pattern is None:
        return
    for match, line in _uncommented(pattern, text):
        tag = tuple(map(whole, match.groups()))
        if months is None or tag in months:
            yield tag if months is None else months[tag], line
        elif tag > max(months):
            yield tag, line  # of a release that is newer than all of these


def prose(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`DeepSpeed v0.9.5`, `cd deepspeed-0.9.5`, no bound: `at least DeepSpeed 0.9.5`, `DeepSpeed
    0.9.5 or later`.
    """
    bound = re.compile(r"(?:at least|since|from|minimum|than|until|before)\W+$", re.IGNORECASE)
    name = rf"(?<![\w/-]){program}(?:\]\(\S+\))?(?:-|[\s`*]{{1,3}}(?:(?:version|release)\s+)?)"
    for match, line, _ in _with_lines(rf"{name}{NUMBER}(?![\w.]*[0-9]){_NO_BOUND}", text):
        if not bound.search(text[max(match.start() - 20, 0) : match.start()]):
            yield numbers(match[1]), line


def numbers(version: str) -> Version:
    """`0.9.5` as numbers, to compare."""
    return tuple(map(whole, version.split(".")))
