"""Files around those that are checked, which tell what these mean.

Only files of the same project are read, and never a pipe.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath
from posixpath import abspath, dirname, exists, isfile, islink, join, realpath, split
from types import MappingProxyType
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

from ..patterns import lazy_pattern

#: Folders of a file and above it that are looked into; 92 % of the configs and scripts of 230
#: public repositories have their whole repository within these.
_MOST_ABOVE: Final = 7
#: Bytes of a file that is read for what it tells; Megatron's own parser has 0.2 MB.
_MOST_BYTES: Final = 1_000_000
_MAX_DEPTH: Final = 32  # folders below one whose files are listed
_MOST_KEPT: Final = 16_000_000  # bytes of texts that are kept: the Python of a large repository
_OF_ENTRY: Final = 500  # bytes of a key, about
_LIBRARIES: Final = ("node_modules", "site-packages")  # others' files, by the ten thousand
_MAX_PATH: Final = 4096  # Linux, PATH_MAX: a longer text is no path
_ANY: Final = lazy_pattern(r"[*?[]")  # a pattern for several names
_P = ParamSpec("_P")
_T = TypeVar("_T")
_clear_answers: list[Callable[[], None]] = []  # of the functions that keep theirs until then


class _Checked(NamedTuple):
    """What is known while files are checked."""

    named: tuple[Path, ...] = ()
    alone: bool = False  #: whether nothing around is read
    #: files that are to be written, and the folders above them
    coming: frozenset[str] = frozenset()
    texts: Mapping[str, str] = MappingProxyType({})  #: that are read instead of files, by path
    #: folders without links, by their path: each is asked for thousands of times
    real: dict[str, str] | None = None
    projects: dict[str, Path] | None = None  #: the folder of the project, by a folder in it
    read: _Texts | None = None  #: texts of files around that were read


_NOTHING: Final = _Checked()
_checked: ContextVar[_Checked] = ContextVar("checked", default=_NOTHING)


def until_next_check(most: int) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Keep up to `most` answers of a function that reads files, until files are checked again.

    The files may have changed by then.
    """

    def kept(answer: Callable[_P, _T]) -> Callable[_P, _T]:
        cached = lru_cache(maxsize=most)(answer)
        _clear_answers.append(cached.cache_clear)
        return cast("Callable[_P, _T]", cached)

    return kept


@contextmanager
def checking(
    paths: Iterable[str | os.PathLike[str]],
    coming: Iterable[Path] = (),
    texts: Mapping[str, str] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> Iterator[None]:
    """Let files around those at `paths` be read while these are checked, unless `alone`.

    Files that are `coming` count as there. `texts` are read in place of the files of these names.
    """
    for clear in _clear_answers:
        clear()
    named = tuple(Path(realpath(path)) for path in paths)
    there = set[str]()
    for path in map(_plain, coming):
        there.update(map(str, (path, *path.parents)))
    instead = {str(_plain(Path(name))): text for name, text in texts.items()}
    checked = _Checked(
        named=named,
        alone=alone,
        coming=frozenset(there),
        texts=instead,
        real={},
        projects={},
        read=_Texts(),
    )
    token = _checked.set(checked)
    try:
        yield
    finally:
        _checked.reset(token)


def is_there(path: Path) -> bool:
    """Return whether there is a file or folder at a path, or one is coming.

    The path may lead through a folder that is coming, and back out of it.
    """
    name = str(path)
    if len(name) >= _MAX_PATH:
        return False
    plain = abspath(name)
    return exists(name) or (plain != name and exists(plain)) or plain in _checked.get().coming


def is_before_writing() -> bool:
    """Return whether the files that are checked are still to be written, all of a set at once."""
    return bool(_checked.get().texts)


def _plain(path: Path) -> Path:
    """An absolute path without `..`; links in it stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` follows links


def folders_above(holder: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of a file and those above it in its project.

    A home folder, and what holds it, is left out. The project is its Git repository, else the
    folder that was named, else what is below the working directory.
    """
    return folders_from(dirname(os.fspath(holder)))


def folders_from(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder and those above it in its project, as `folders_above` has them."""
    checked = _checked.get()
    if checked.alone:
        return iter(())
    return iter(_above(os.fspath(folder), checked.named, _real(".")))


@until_next_check(256)
def _above(folder: str, named: tuple[Path, ...], _working: str) -> tuple[Path, ...]:
    """The folders from one on; those around a file are asked for a dozen times.

    The answer also depends on the working directory.
    """
    return _folders(Path(folder).absolute(), named)


@until_next_check(1024)
def _folders(folder: Path, _named: tuple[Path, ...]) -> tuple[Path, ...]:
    """A folder and those above it in its project, which depends on the paths that were named."""
    outside = {Path.home(), *Path.home().parents}
    highest = str(_project_of(folder))
    folders = list[Path]()
    for above in (folder, *folder.parents)[:_MOST_ABOVE]:
        if above in outside:
            break
        folders.append(above)
        if _real(str(above)) == highest:
            break
    return tuple(folders)


def is_named_in(folder: Path, holder: Path) -> bool:
    """Return whether a file was named to be checked: itself, or a folder that it is in.

    A folder counts if it is `folder` or below that.
    """
    file, highest = Path(_real(str(holder.parent)), holder.name), Path(_real(str(folder)))
    return any(
        file.is_relative_to(named) and named.is_relative_to(highest)
        for named in _checked.get().named
    )


def is_within(path: str | Path, folder: str | Path) -> bool:
    """Return whether a file or folder is in the project of a folder, links followed."""
    return not _checked.get().alone and _is_in(path, _project_of(folder))


def _is_in(path: str | Path, project: Path) -> bool:
    """Return whether a file or folder is in a project, links followed."""
    parent, name = split(path)
    real = join(_real(parent), name)  # the folder is likely known: it is asked for often
    if name in ("", ".", "..") or islink(real):
        real = realpath(path)
    return f"{real}/".startswith(f"{str(project).rstrip('/')}/")


def is_readable(path: str | Path, folder: str | Path) -> bool:
    """Return whether this is a regular file in the project of a folder, links followed."""
    try:
        return isfile(path) and is_within(path, folder)
    except (OSError, ValueError):  # a name too long, or not one for this system
        return False


def matching(pattern: str, folder: Path, project: Path) -> Iterator[Path]:
    """The files in a folder that fit a pattern, in order.

    Folders outside of the project of `project` are not listed.
    """
    first, _, rest = pattern.partition("/")
    with suppress(OSError):
        listing = _listed(str(folder), project)
        for name in _fitting(first, listing):
            if rest:
                if name in listing.folders:
                    yield from matching(rest, folder / name, project)
            elif name in listing.files or (
                name in listing.links and is_readable(folder / name, project)
            ):
                yield folder / name


def _fitting(pattern: str, listing: _Listing) -> Iterable[str]:
    """The names of a folder that fit a pattern, in order."""
    if pattern == "*":
        return listing.names
    if _ANY.search(pattern):
        return fnmatch.filter(listing.names, pattern)
    kinds = (listing.files, listing.folders, listing.links)
    return (pattern,) if any(pattern in names for names in kinds) else ()


def names_in(folder: str, project: str) -> tuple[str, ...]:
    """The names in a folder, in order.

    There are none where it may not be read, or is outside of the project of `project`.
    """
    return _listed(folder, project).names


class _Listing(NamedTuple):
    """The names in a folder, in order, and those of each kind."""

    names: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()  #: links to folders too
    files: frozenset[str] = frozenset()  #: regular files
    links: frozenset[str] = frozenset()


def _listed(folder: str, project: str | Path) -> _Listing:
    return _Listing() if _checked.get().alone else _listing(folder, _project_of(project))


@until_next_check(4096)
def _listing(folder: str, project: Path) -> _Listing:
    """What is in a folder; nothing where it may not be read, or is outside of a project."""
    with suppress(OSError, ValueError):  # no folder, or a name that no system has
        if _is_in(folder, project):
            with os.scandir(folder or ".") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
            files = (entry for entry in entries if entry.is_file(follow_symlinks=False))
            return _Listing(
                names=tuple(entry.name for entry in entries),
                folders=frozenset(entry.name for entry in entries if _is_folder(entry)),
                files=frozenset(entry.name for entry in files),
                links=frozenset(entry.name for entry in entries if entry.is_symlink()),
            )
    return _Listing()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def files_below(
    folder: Path,
    left_out: Collection[str] = (),
    depth: int = _MAX_DEPTH,
    hidden: list[Path] | None = None,
) -> Iterator[Path]:
    """The files and links in and below a folder, in order.

    Hidden folders, libraries and those in `left_out` are passed over. The hidden ones are added to
    `hidden`.
    """
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = folder / entry.name
        is_passed_over = entry.name.startswith("__") or entry.name in (*_LIBRARIES, *left_out)
        if not entry.is_dir(follow_symlinks=False):
            yield path
        elif entry.name.startswith("."):
            if hidden is not None:
                hidden.append(path)
        elif depth and not is_passed_over:
            yield from files_below(path, left_out, depth - 1, hidden)


def text_around(path: Path, folder: Path, most: int = _MOST_BYTES) -> str:
    """The text of a file in the project of a folder, up to `most` bytes; empty for any other."""
    checked = _checked.get()
    text = checked.texts.get(str(_plain(path))) if checked.texts else None
    if text is not None:
        return text[:most]
    if checked.read is None:
        return _read(path, folder, most)

    key = (str(path), _project_of(folder), most)
    text = checked.read.get(key)
    if text is None:
        text = _read(path, folder, most)
        checked.read.keep(key, text)
    return text


def _read(path: Path, folder: Path, most: int) -> str:
    try:
        if is_readable(path, folder):
            with path.open("rb") as file:
                return file.read(most).decode("utf-8", errors="replace")
    except OSError:
        pass
    return ""


class _Texts:
    """The texts that were read last, as many as fit in a bound on memory.

    Many files of a repository ask for the same few programs around them.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Path, int], str] = {}
        self._room = _MOST_KEPT

    def get(self, key: tuple[str, Path, int]) -> str | None:
        text = self._texts.pop(key, None)
        if text is not None:
            self._texts[key] = text  # the last asked for comes last
        return text

    def keep(self, key: tuple[str, Path, int], text: str) -> None:
        """Keep a text; those that were asked for longest ago go."""
        if _size(text) > _MOST_KEPT // 8:  # it would displace too many others
            return
        self._texts[key] = text
        self._room -= _size(text)
        while self._room < 0:
            self._room += _size(self._texts.pop(next(iter(self._texts))))


def _size(text: str) -> int:
    """Bytes of a text in memory, or a little more."""
    return (1 if text.isascii() else 4) * len(text) + _OF_ENTRY


@until_next_check(64)
def ignored_in(folder: Path) -> dict[str, bool]:
    """The patterns of a folder's .gitignore, and whether each is ignored or kept.

    Of several patterns that fit a name the last counts.
    """
    ignored_by_pattern = dict[str, bool]()
    for line in map(str.strip, text_around(folder / ".gitignore", folder).splitlines()):
        pattern = re.sub(r"^!?/?(?:\*\*/)?|/\*{0,2}$", "", line)
        if pattern.strip("*") and not line.startswith("#"):
            ignored_by_pattern.pop(pattern, None)
            ignored_by_pattern[pattern] = not line.startswith("!")
    return ignored_by_pattern


def is_left_out(name: str, holder: str | os.PathLike[str]) -> bool:
    """Return whether a .gitignore above a file names a folder.

    Such a folder is there for whoever works with the project. Where the file is in a folder below
    the .gitignore, the name may begin there.
    """
    return _is_left_out(name, dirname(os.fspath(holder)))


def _is_left_out(name: str, holders_folder: str) -> bool:
    from_holder = (Path(holders_folder).absolute() / name).as_posix()
    for folder in folders_from(holders_folder):
        patterns = ignored_in(folder)
        if not patterns:
            continue
        names = (name.strip("/"), from_holder.removeprefix(f"{folder.absolute().as_posix()}/"))
        # gitignore(5): a pattern without a slash is one of names at any depth.
        parts = {part for each in names for part in each.split("/")}
        for pattern in reversed(patterns):
            folder_named = pattern.partition("/*")[0]  # `logs/*` leaves out all that is in it
            at_this_depth = names if "/" in folder_named else parts
            if any(fnmatchcase(each, folder_named) for each in at_this_depth):
                if patterns[pattern]:
                    return True
                break  # the last pattern that fits keeps it
    return False


def is_ignored(path: PurePath, holder: str | os.PathLike[str]) -> bool:
    """Return whether a .gitignore above a file names a path, a folder of it, or its last name.

    Such a file may be there for whoever works with the project.
    """
    if len(str(path)) > _MAX_PATH:  # its folders together would take the square of its length
        return False
    return _is_ignored(str(path), dirname(os.fspath(holder)))


@until_next_check(1024)
def _is_ignored(name: str, holders_folder: str) -> bool:
    path = PurePath(name)
    folders = {str(folder) for folder in path.parents} - {".", "/"}
    if any(_is_left_out(folder, holders_folder) for folder in folders):
        return True
    if any(_is_kept(path, patterns) for patterns in map(ignored_in, folders_from(holders_folder))):
        return False
    return any(_is_left_out(name, holders_folder) for name in {str(path), path.name} - {".", "/"})


def _is_kept(path: PurePath, ignored_by_pattern: dict[str, bool]) -> bool:
    """Return whether the last pattern of a .gitignore that fits a path is one such as `!*.yaml`."""
    for pattern in reversed(ignored_by_pattern):
        if any(fnmatchcase(name.strip("/"), pattern) for name in (str(path), path.name)):
            return not ignored_by_pattern[pattern]
    return False


def _project_of(folder: str | Path) -> Path:
    """The folder of the project that a folder is in, without links."""
    checked, name = _checked.get(), os.fspath(folder)
    if checked.projects is None:
        return _project(_real(name), checked.named, _real("."))
    if name not in checked.projects:
        checked.projects[name] = _project(_real(name), checked.named, _real("."))
    return checked.projects[name]


def _real(folder: str) -> str:
    """The path of a folder without links."""
    real_paths = _checked.get().real
    if real_paths is None:
        return realpath(folder)
    if folder not in real_paths:
        real_paths[folder] = realpath(folder)
    return real_paths[folder]


@until_next_check(4096)
def _project(within: str, named: tuple[Path, ...], working: str) -> Path:
    """The folder of the project that a folder is in; paths are without links.

    `working` is the working directory, `named` are the paths that were named to be checked.
    """
    folder = Path(within)
    above = (folder, *folder.parents)
    outside = {Path.home(), *Path.home().parents}
    for place in above:
        # os.path, as a folder that may not be read is an error to pathlib
        if place not in outside and os.path.exists(place / ".git"):  # noqa: PTH110
            return place
    for place in reversed(above):
        if place in named:
            return place
    is_below_working = Path(working) in above and Path(working) not in outside
    return Path(working) if is_below_working else folder
