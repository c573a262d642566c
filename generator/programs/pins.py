"""How files name the release of a program: pins, bounds, images, prose, and sources of which the
release isn't known, such as a commit of its repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ..findings import Version
from ..numerals import whole
from ..patterns import lazy_pattern

#: Names under which package managers have a program, as a pattern; else its own.
_PACKAGES: Final = {"torch": "(?:py)?torch"}
#: Names of repositories, where they aren't those of the packages.
_REPOSITORIES: Final = {"megatron-core": "Megatron-LM", "torch": "pytorch"}
LAST: Final = 99  #: of a minor version, where a pin excludes the next
NUMBER: Final = r"v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})"
_LATER: Final = (
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
#: A tag of a release, at the beginning of what names a place of a repository.
_TAG: Final = lazy_pattern(rf"(?:refs/tags/)?(?:release[-/]?)?{NUMBER}", re.IGNORECASE)
#: Commands behind `git clone` that take another place of the repository.
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
_MOST_BEHIND: Final = 400  #: characters behind a clone in which its place is checked out


def pins(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`deepspeed==0.9.5`, `deepspeed = "^0.9.5"`, `deepspeed.git@v0.9.5`, and a lock file's
    package; no release that is still to come.
    """
    yield from ((numbers(each), line) for each, rest, line in _pinned(program, text) if not rest)
    for place, line in _places(program, text):
        tag = _TAG.match(place)
        # Megatron's tags are among the images.
        if tag is not None and program != "megatron-core" and not unreleased(place, tag.end(1)):
            yield numbers(tag[1]), line


def unreleased(text: str, end: int) -> str:
    """What makes a number that ends at a place no release: `rc0`, `.dev0`, a commit beyond it."""
    rest = _BEFORE_RELEASE.match(text, end) or _BEYOND_RELEASE.match(text, end)
    return rest[0] if rest is not None else ""


def is_beyond(rest: str) -> bool:
    """Whether what makes a number no release is a commit beyond that."""
    return "+" in rest


def _pinned(program: str, text: str) -> Iterator[tuple[str, str, int]]:
    """The numbers that pins have, what makes them no releases, and their lines."""
    name = rf"(?<![\w/-]){_PACKAGES.get(program, program)}"
    for pattern in (
        rf"{name}(?:\[[\w,-]*\])?[\"']?\s*(?:={{1,3}}|~=)\s*{NUMBER}",
        rf"{name}[\"']?\s*[=:]\s*(?:\{{[^}}\n]{{0,400}}?\bversion[\"']?\s*[=:]\s*)?[\"']"
        rf"(?:==?|~=?|\^)?\s*{NUMBER}",
        rf"/{program}(?:\.git)?@{NUMBER}",
        rf"/{program}-{NUMBER}[\w.%+-]{{0,100}}\.(?:whl|zip|tar\.gz)\b",
        rf"name = \"{program}\"\s+version = \"{NUMBER}",
    ):
        for match, line in _written(pattern, text):
            yield match[1], unreleased(text, match.end(1)), line


def sources(program: str, text: str) -> Iterator[tuple[str, int]]:
    """What a program is installed from where that isn't a release: a commit or a branch of its
    repository, an archive of it, a path, a version before its release.
    """
    yield from ((f"{number}{rest}", line) for number, rest, line in _pinned(program, text) if rest)
    for place, line in _places(program, text):
        is_release = re.search(NUMBER, place) is not None
        if not is_release and place not in _NEWEST_BRANCHES:
            yield place[:7] if _COMMIT.fullmatch(place) else place, line


def _places(program: str, text: str) -> Iterator[tuple[str, int]]:
    """The places from which a text takes a program, where these aren't indexes of packages."""
    repository = _REPOSITORIES.get(program, program)
    if repository.lower() not in text.lower():
        return
    name = rf"(?<![\w/-]){_PACKAGES.get(program, program)}(?:\[[\w,-]{{0,80}}\])?"
    folders = r"[\"']?(?:[\w.~-]{1,80}/){0,8}"
    for pattern in (
        # `git+https://github.com/huggingface/transformers.git@cae78c46`
        rf"\bgit\+[^\s\"'#]{{1,200}}?/{repository}(?:\.git)?@([\w./-]{{1,100}})",
        # `https://github.com/huggingface/transformers/archive/cae78c46.zip`
        rf"/{repository}/(?:archive|tarball|zipball)/(?:refs/heads/)?"
        r"([\w./-]{1,100}?)(?:\.zip|\.tar\.gz)?(?![\w./-])",
        # `transformers @ file:///opt/transformers`
        rf"{name}\s{{0,9}}@\s{{0,9}}((?:file:|\.{{0,2}}/)[^\s\"',]{{1,200}})",
        # `pip install -e third_party/transformers`, `pip install ./transformers`
        rf"(?:\s-e|--editable)[\s=]{{1,9}}({folders}{repository})/?(?=[\s\"';&\[]|$)",
        rf"\bpip3?\s{{1,9}}install\s{{1,9}}([\"']?\.{{0,2}}/{folders}{repository})/?(?=[\s\"';&\[]|$)",
    ):
        yield from ((match[1].strip("\"'"), line) for match, line in _written(pattern, text))
    yield from _in_tables(name, text)
    yield from _of_clones(repository, text)


def _in_tables(name: str, text: str) -> Iterator[tuple[str, int]]:
    """`transformers = {git = "https://...", rev = "cae78c46"}`, as Poetry and uv have it."""
    for match, line in _written(rf"{name}[\"']?\s{{0,9}}=\s{{0,9}}\{{([^}}\n]{{1,400}})\}}", text):
        keys = dict(_KEY.findall(match[1]))
        for key in ("rev", "tag", "branch") if "git" in keys else ("path", "url", "file"):
            if key in keys:
                yield keys[key], line


def _of_clones(repository: str, text: str) -> Iterator[tuple[str, int]]:
    """The places that a text checks out of clones of a repository."""
    clone = rf"\bgit\s{{1,9}}clone\b([^\n;&]{{0,200}}?)/{repository}(?:\.git)?(?![\w-])"
    for match, line in _written(clone, text):
        end = match.end() + _MOST_BEHIND
        following = _CLONE.search(text, match.end(), end)
        place = (
            _BRANCH.search(match[1])
            or _BRANCH.match(text, match.end(), end)
            or _CHECKED_OUT.search(text, match.end(), following.start() if following else end)
        )
        if place is not None:
            yield place[1], line


def bounds(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`deepspeed<=0.9.5`, `deepspeed>=0.9,<0.15`."""
    bounded = (
        rf"(?<![\w/-]){_PACKAGES.get(program, program)}(?:\[[\w,-]*\])?[\"']?\s*"
        r"(?:(?:[><~]=?|!=)\s*[0-9.*]+\s*,\s*){0,4}"
    )
    for match, line in _written(rf"{bounded}<=\s*{NUMBER}", text):
        yield numbers(match[1]), line
    for match, line in _written(
        rf"{bounded}<\s*([0-9]{{1,4}}(?:\.[1-9][0-9]{{0,3}})?)(?:\.0)*(?![.0-9])", text
    ):
        *above, first = numbers(match[1])
        if first:
            yield (*above, first - 1, LAST), line


def _written(pattern: str, text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The matches with their lines, less those in comments."""
    return ((match, line) for match, line, is_comment in _placed(pattern, text) if not is_comment)


def _placed(pattern: str, text: str) -> Iterator[tuple[re.Match[str], int, bool]]:
    """The matches, in whatever case, with their lines, and whether a comment begins before them.

    Each looks only at what lies behind the one before: the time doesn't grow with their square.
    """
    line, last, is_comment = 1, 0, False
    for match in re.finditer(pattern, text, re.IGNORECASE):
        between = text[last : match.start()]
        behind_newline = between.rpartition("\n")[2]
        is_same_line = len(behind_newline) == len(between)
        behind_newline = behind_newline.removeprefix("#SBATCH ")  # no comment to Slurm
        is_comment = "#" in behind_newline or (is_same_line and is_comment)
        line, last = line + between.count("\n"), match.start()
        yield match, line, is_comment


def images(program: str, text: str) -> Iterator[tuple[Version, int]]:
    """`FROM deepspeed/deepspeed:v072_torch112_cu117`: images and tags that have the release."""
    months = OF_MONTHS.get(program)
    pattern = _IMAGES.get(program)
    if pattern is None:
        return
    for match, line in _written(pattern, text):
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
    for match, line, _ in _placed(rf"{name}{NUMBER}(?![\w.]*[0-9]){_LATER}", text):
        if not bound.search(text[max(match.start() - 20, 0) : match.start()]):
            yield numbers(match[1]), line


def numbers(version: str) -> Version:
    """`0.9.5` as numbers, to compare."""
    return tuple(map(whole, version.split(".")))
