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
#: Options of training programs that name data to be read: `--data-path`, `data.train_dir=...`
_DATA_OPTION: Final = lazy_pattern(
    r"(?:--)?(?:\w+[.-])*(?:\w+_)?(?:data|dataset|train|valid|validation|test|eval)s?"
    r"(?:[_-](?:path|dir|root|folder|file|prefix)s?)?"
)
#: Folders of the system that nobody expects to outlive the pod.
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev", "/run", "/proc")
#: Folders where images have programs, and maybe data beside them.
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
#: The API of TrainJobs, whose pods get more volumes from another object: their runtime.
_TRAINER_API: Final = "trainer.kubeflow.org/"


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
            if _is_outside(folder, (*mounted, *_TEMPORARY)) and not _is_used(job, folder):
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
        script = launch.program.path if launch.program else None
        # of /app2/src/train.py: /app2, which is in the image as the program is
        program_folder = map(str, PurePosixPath(script or "").parents[-2:-1])
        folders = (*mounted, *_OF_IMAGES, *program_folder)
        for name, word, path in _data_paths(launch):
            if _is_outside(path, folders) and not _is_used(job, path):
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
            keys = job.config_folders.get(folder)
            if keys is None or not name or name in keys or to_fill(path):
                continue
            message = f"{path} is not there: {folder} is a ConfigMap without the key {name}"
            paths = " or ".join(f"{folder}/{key}" for key in sorted(keys)[:_MOST_NAMED])
            hint = f"write {paths}, or add the key" if paths else "add the key to the ConfigMap"
            yield Violation(launch.script.locate(word), message, hint)


def _saved_there(job: KubernetesJob, launch: Launch, word: Word, path: PurePosixPath) -> Violations:
    """A violation where a folder to save to is within a ConfigMap's."""
    above = map(str, (path, *path.parents))
    config_folder = next((folder for folder in above if folder in job.config_folders), None)
    if config_folder is not None:
        message = f"{path} can't be written to: {config_folder} is a ConfigMap"
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
            config_map = job.other_config_folders.get(folder)
            if config_map is not None and name and not to_fill(path):
                message = f"{path} isn't checked: the ConfigMap {config_map} is not in this file"
                hint = f"check a file that has {config_map} too, or {name} by itself"
                yield Violation(launch.script.locate(word), message, hint)


def _mounted(job: KubernetesJob) -> dict[str, bool] | None:
    """The paths where any of the pods mounts a volume, and whether that may hold data.

    None where the job doesn't say all of its volumes.
    """
    if job.row.versions[0].startswith(_TRAINER_API):
        return None
    may_hold_data: dict[str, bool] = {}
    for role in job.roles:
        # A volume is a mapping with its name, and with its kind as the other key. A wrong name may
        # be a list, so that only its text can be looked up.
        keys = {
            str(volume.get("name")): set(volume)
            for _, volume in job.mappings(f"{role.pod}/volumes")
        }
        mounts = [mount for _, mount in job.mappings(f"{role.container}/volumeMounts")]
        # Volcano's jobs have volumes of their own, with the path
        mounts += [volume for _, volume in job.mappings("spec/volumes")]
        for mount in mounts:
            path = mount.get("mountPath")
            if not isinstance(path, str) or to_fill(path):
                return None
            has_data = _WITHOUT_DATA.isdisjoint(keys.get(str(mount.get("name")), ()))
            may_hold_data[path] = may_hold_data.get(path, False) or has_data
    return may_hold_data


def _read_only(job: KubernetesJob) -> frozenset[str]:
    """The paths where any of the pods mounts a volume that it can't write to."""
    return frozenset(
        str(mount.get("mountPath"))
        for role in job.roles
        for _, mount in job.mappings(f"{role.container}/volumeMounts")
        if mount.get("readOnly") is True
    )


def _is_outside(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path of the container is known to be in none of the folders."""
    if not path.startswith("/") or to_fill(path):
        return False  # a relative path depends on the image's working directory
    return not any(map(PurePosixPath(path).is_relative_to, folders))


def _is_used(job: KubernetesJob, path: str) -> bool:
    """Whether another command than the launches names a path, or one within or above it.

    Such a command may make, link or copy what is there.
    """
    ours = PurePosixPath(path)
    words = (word.value for word in job.script.beside_launches) if job.script else ()
    named = (PurePosixPath(word) for word in words if word and word.startswith("/") and word != "/")
    return any(ours.is_relative_to(each) or each.is_relative_to(ours) for each in named)


def _data_paths(launch: Launch) -> Iterator[tuple[str, Word, str]]:
    """Option, word and path of each absolute path of data; of a list its first."""
    option = ""  # of data, whose path is yet to come
    for word in launch.arguments:
        text = word.value or ""
        name, equals, value = text.partition("=")
        is_option = text.startswith("-") or bool(equals)
        if is_option:
            option = name if _DATA_OPTION.fullmatch(name) else ""
        path = value if is_option else text
        if option and path.startswith("/"):
            yield option, word, path
            option = ""


def _hint(path: str, mounted: dict[str, bool], verb: str) -> str:
    """Where to mount a volume for a path, and the mounted folders to `verb` (save, read) under."""
    top_folder = "/".join(path.split("/")[:2])
    others = [other for other, has_data in mounted.items() if has_data]
    instead = f", or {verb} under {' or '.join(others)}" if others else ""
    return f"mount a volume at {top_folder}{instead}"
