"""Rules on the folders in a container that a job's command saves to and reads from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from ...findings import ERROR, NOTE, WARNING, Violation, Violations
from ...patterns import lazy_pattern
from ...rules.violations import derived
from ...submission.launches import Launch
from ...text.shell.records import Word
from ..cluster_jobs import to_fill
from ..launching.folders import folders_to_save
from .job import KubernetesJob
from .rules import jobs

_LOST: Final = derived("a container's own files end with its pod; a volume's stay")
_READ_ONLY: Final = derived("a ConfigMap's volume has its keys as files, and can't be written to")
_MOST_NAMED: Final = 3  #: keys in a hint
#: Options and keys of training programs for data that is read.
_READS: Final = lazy_pattern(
    r"(?:--)?(?:\w+[.-])*(?:\w+_)?(?:data|dataset|train|valid|validation|test|eval)s?"
    r"(?:[_-](?:path|dir|root|folder|file|prefix)s?)?"
)
#: Folders of the system that nobody expects to stay.
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev", "/run", "/proc")
#: Where images keep programs, with data of theirs.
_OF_IMAGES: Final = (
    *_TEMPORARY,
    "/app",
    "/code",
    "/etc",
    "/home",
    "/opt",
    "/root",
    "/src",
    "/usr",
    "/var",
    "/workspace",
)
#: Kinds of volumes that hold no data of a training.
_WITHOUT_DATA: Final = frozenset({"configMap", "downwardAPI", "emptyDir", "projected", "secret"})
#: Kinds whose pods get more volumes from another object: a TrainJob's from its runtime.
_PATCHED: Final = "trainer.kubeflow.org/"


@jobs.rule("KUB032", WARNING, "silent", _LOST)
def saves_are_on_a_volume(job: KubernetesJob) -> Violations:
    """What a job saves is in a folder on a volume.
    Prevents: No error: the checkpoints are lost with the pod. No finding for temporary folders, and
    for those that the command makes or copies.
    Fix: mount a volume there, or save to a folder of one that is mounted
    """
    mounted = _mounted(job)
    if mounted is None:
        return
    writable = {path: has_data for path, has_data in mounted.items() if path not in _read_only(job)}
    for launch in job.launches:
        for name, word, folder in folders_to_save(launch):
            if _is_outside(folder, (*(mounted or {}), *_TEMPORARY)) and not _is_used(job, folder):
                message = f"{name} {folder} is on no volume: what is saved is lost with the pod"
                hint = _hint(folder, writable, "save")
                yield Violation(launch.script.locate(word), message, hint)


@jobs.rule("KUB033", NOTE, "training", _LOST)
def data_is_on_a_volume(job: KubernetesJob) -> Violations:
    """Data that a job reads is on a volume, where its pods have one for data. It may be in the
    image.
    Prevents: FileNotFoundError, on every rank.
    Fix: write the path where the volume is mounted, or mount the volume there
    """
    mounted = _mounted(job) or {}
    if not any(mounted.values()):
        return
    for launch in job.launches:
        program = PurePosixPath((launch.program.path if launch.program else None) or "")
        known = (*mounted, *_OF_IMAGES, *map(str, program.parents[-2:-1]))
        for name, word, path in _read(launch):
            if _is_outside(path, known) and not _is_used(job, path):
                message = f"{name} {path} is on no volume: it has to be in the image"
                yield Violation(launch.script.locate(word), message, _hint(path, mounted, "read"))


@jobs.rule("KUB035", ERROR, "launcher", _READ_ONLY)
def files_are_keys_of_the_config_map(job: KubernetesJob) -> Violations:
    """A file in the folder of a ConfigMap that the same file defines is a key of it, and nothing is
    saved there.
    Prevents: The program stops because its config doesn't exist; Read-only file system.
    Fix: write the name of a key, or add the file to the ConfigMap; save to a volume
    """
    for launch in job.launches:
        saved = {word: path for _, word, path in folders_to_save(launch)}
        for word in launch.arguments:
            if word in saved:
                yield from _saved_there(job, launch, word, PurePosixPath(saved[word]))
                continue
            path = (word.value or "").rpartition("=")[2]
            folder, _, name = path.rpartition("/")
            there = job.config_folders.get(folder)
            if there is None or not name or name in there or to_fill(path):
                continue
            message = f"{path} is not there: {folder} is a ConfigMap without the key {name}"
            use = " or ".join(f"{folder}/{one}" for one in sorted(there)[:_MOST_NAMED])
            hint = f"write {use}, or add the key" if use else "add the key to the ConfigMap"
            yield Violation(launch.script.locate(word), message, hint)


def _saved_there(job: KubernetesJob, launch: Launch, word: Word, path: PurePosixPath) -> Violations:
    """Judge a folder to save to that is in a ConfigMap's."""
    within = [str(each) for each in (path, *path.parents) if str(each) in job.config_folders]
    if within:
        message = f"{path} can't be written to: {within[0]} is a ConfigMap"
        yield Violation(launch.script.locate(word), message, "save to a volume")


@jobs.rule("KUB037", NOTE, "launcher", _READ_ONLY)
def config_maps_are_here(job: KubernetesJob) -> Violations:
    """A ConfigMap of which a launch reads a file is in the file that was checked.
    Prevents: No error: what the file says isn't checked, nor whether it is there.
    Fix: name a file that has both, or check the ConfigMap's files by themselves
    """
    for launch in job.launches:
        for word in launch.arguments:
            path = (word.value or "").rpartition("=")[2]
            folder, _, name = path.rpartition("/")
            there = job.other_config_folders.get(folder)
            if there is not None and name and not to_fill(path):
                message = f"{path} isn't checked: the ConfigMap {there} is not in this file"
                hint = f"check a file that has {there} too, or {name} by itself"
                yield Violation(launch.script.locate(word), message, hint)


def _mounted(job: KubernetesJob) -> dict[str, bool] | None:
    """Whether a volume may hold data, by the paths of all volumes that any of the pods mounts; None
    where the job doesn't say all of them.
    """
    if job.row.versions[0].startswith(_PATCHED):
        return None
    paths: dict[str, bool] = {}
    for role in job.roles:
        kinds = {
            volume.get("name"): set(volume) for _, volume in job.mappings(f"{role.pod}/volumes")
        }
        mounts = [mount for _, mount in job.mappings(f"{role.container}/volumeMounts")]
        # Volcano's jobs have volumes of their own, with the path
        mounts += [volume for _, volume in job.mappings("spec/volumes")]
        for mount in mounts:
            path = mount.get("mountPath")
            if not isinstance(path, str) or to_fill(path):
                return None
            has_data = _WITHOUT_DATA.isdisjoint(kinds.get(mount.get("name"), ()))
            paths[path] = paths.get(path, False) or has_data
    return paths


def _read_only(job: KubernetesJob) -> frozenset[str]:
    """The paths where any of the pods mounts a volume that it can't write to."""
    return frozenset(
        str(mount.get("mountPath"))
        for role in job.roles
        for _, mount in job.mappings(f"{role.container}/volumeMounts")
        if mount.get("readOnly") is True
    )


def _is_outside(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path of the container is in none of some folders; of a relative one nothing is
    known.
    """
    within = map(PurePosixPath(path).is_relative_to, folders)
    return path.startswith("/") and not to_fill(path) and not any(within)


def _is_used(job: KubernetesJob, path: str) -> bool:
    """Whether a command beside the launches names a path, one in it or one above it: it may make,
    link or copy it.
    """
    ours = PurePosixPath(path)
    words = (word.value for word in job.script.beside_launches) if job.script else ()
    others = (
        PurePosixPath(word) for word in words if word and word.startswith("/") and word != "/"
    )
    return any(ours.is_relative_to(other) or other.is_relative_to(ours) for other in others)


def _read(launch: Launch) -> Iterator[tuple[str, Word, str]]:
    """Option, word and path of each absolute path of data; of a list its first."""
    option = ""
    for word in launch.arguments:
        text = word.value or ""
        name, equals, value = text.partition("=")
        is_option = text.startswith("-") or bool(equals)
        if is_option:
            option = name if _READS.fullmatch(name) else ""
        path = value if is_option else text
        if option and path.startswith("/"):
            yield option, word, path
            option = ""


def _hint(path: str, mounted: dict[str, bool], verb: str) -> str:
    folder = "/".join(path.split("/")[:2])
    others = [other for other, has_data in mounted.items() if has_data]
    instead = f", or {verb} under {' or '.join(others)}" if others else ""
    return f"mount a volume at {folder}{instead}"
