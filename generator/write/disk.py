"""Files put on the disk so that neither a crash nor another program's file is overlooked."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Errors of `link` on file systems without hard links, for files that may not have one more, and on a full disk.
_NO_LINK: Final = {
    *(errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK),
    *(errno.ENOSPC, errno.EDQUOT),
}
#: Errors of `fsync` on folders of file systems that can't.
_NO_SYNC: Final = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EACCES}


def write_new(path: Path, contents: bytes, *, like: Path | None = None, executable: bool = False) -> None:
    """A new file, on the disk when this returns; owner, mode and attributes are those of the file `like`, if any."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        left = memoryview(contents)
        while left:
            left = left[os.write(file, left) :]
        if like is not None:
            _copy_attributes(like, path)
        mode = path.stat().st_mode & 0o7777
        if bool(mode & 0o100) != executable:
            mode = mode | (mode & 0o444) >> 2 if executable else mode & ~0o111  # who may read may execute
            path.chmod(mode)
        os.fsync(file)
    finally:
        os.close(file)


def put(source: Path, place: Path) -> None:
    """Move to a place where nothing is. `FileExistsError` where something is, whenever it came to be there.

    Only where no hard link can be made, as of folders and symbolic links, there is a moment between looking and moving.
    """
    if source.is_file() and not source.is_symlink():
        try:
            os.link(source, place)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            source.unlink()
            return
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
    source.rename(place)


def is_put(source: Path, place: Path) -> bool:
    """Whether `put` moved it; it may have been cut off before it took the source away."""
    return not os.path.lexists(source) or same(source, place)


def same(one: Path, other: Path) -> bool:
    """Whether both are names of one file."""
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def sync(folders: Iterable[Path]) -> None:
    """Bring the names in folders to the disk."""
    for folder in sorted(set(folders)):
        try:
            file = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for child in list(path.iterdir()):
        remove(child)
    path.rmdir()


def _copy_attributes(source: Path, target: Path) -> None:
    status, mine = source.stat(), target.stat()
    for user, group in ((-1, status.st_gid), (status.st_uid, -1)):
        if (user, group) not in ((-1, mine.st_gid), (mine.st_uid, -1)):
            with suppress(PermissionError):
                os.chown(target, user, group)
    shutil.copystat(source, target)  # mode and extended attributes; the times it takes along are put right
    os.utime(target)
