"""Containers of Slurm jobs: the image in the runtime's own terms, its one pull, mounts, and what goes in.

**Source**: NVIDIA/pyxis wiki, Usage (srun --help): `[USER@][REGISTRY#]IMAGE[:TAG]|PATH`, mount flags joined by `+`,
--container-env; NVIDIA/enroot doc/cmd/import.md; apptainer.org/docs/user/latest: bind_paths_and_mounts,
environment_and_metadata (--no-eval, APPTAINERENV_), gpu (--nv, --rocm), docker_and_oci (docker://).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from ...search.plan import Plan
from ..launching.call import Raw, plain_name, shell_word

_GPU_FLAGS: Final = {"nvidia": " --nv", "amd": " --rocm"}  #: apptainer's, by vendor
_OF_LAUNCH: Final = ("MASTER_ADDR", "MASTER_PORT")
_REGISTRY: Final = re.compile(r"(?:[^/#]+@)?(?:[^/#]*[.:][^/#]*|localhost)/.+")  # its first part is a host
_SCHEME: Final = re.compile(r"\A[a-z]+://")


def values(plan: Plan, options: Mapping[str, Any], names: Iterable[str]) -> dict[str, object]:
    """Return what the templates need; `names` are the variables that the job sets."""
    if "container_image" not in options:
        return {"container": "none"}
    runtime = options.get("container_runtime", "pyxis")
    image = str(options["container_image"])
    folder = str(options.get("container_folder", ".")).rstrip("/")
    pulled = "" if is_file(image) else f"{folder}/{plain_name(_SCHEME.sub('', image))}{_SUFFIX[runtime]}"
    output = plan.job.output
    written = (folder for folder in (output.checkpoints, output.logs) if folder is not None and folder.startswith("/"))
    own = (f"{folder}:{folder}" for folder in written if _mount_of(folder, options) is None)
    mounts = [*options.get("container_mounts", ()), *own]
    return {
        "container": runtime,
        "image": image if is_file(image) else _NAMED[runtime](image),
        "pulled": pulled,
        "mounts": tuple(_mount(mount, runtime) for mount in dict.fromkeys(mounts)),
        "read": tuple(_read(plan, options)),
        "gpu_flag": Raw(_GPU_FLAGS.get(plan.job.cluster.accelerator.vendor, "")),
        "passed": Raw((" " if runtime == "apptainer" else ",").join(dict.fromkeys((*_OF_LAUNCH, *names)))),
    }


def is_file(image: str) -> bool:
    """Return whether an image is a file that the nodes share, not a name in a registry."""
    return image.startswith(("/", "./", "../")) or image.endswith((".sqsh", ".squashfs", ".sif", ".img"))


def _of_enroot(image: str) -> str:
    """`docker://[USER@][REGISTRY#]IMAGE[:TAG]`: without `#`, the registry would be taken for a name at Docker Hub."""
    name = image if _SCHEME.match(image) is None else image.partition("://")[2]
    scheme = _SCHEME.match(image)[0] if _SCHEME.match(image) else "docker://"  # type: ignore[index]
    return scheme + (name.replace("/", "#", 1) if "#" not in name and _REGISTRY.fullmatch(name) else name)


#: apptainer's are `docker://REGISTRY/IMAGE[:TAG]`: `#` is enroot's own.
_NAMED: Final[Mapping[str, Callable[[str], str]]] = {
    "pyxis": _of_enroot,
    "apptainer": lambda image: image if _SCHEME.match(image) else f"docker://{image.replace('#', '/', 1)}",
}
_SUFFIX: Final = {"pyxis": ".sqsh", "apptainer": ".sif"}


def _mount(mount: str, runtime: str) -> str:
    """source[:destination[:flags]] with flags as the runtime separates them; a comma would begin the next mount."""
    *places, flags = mount.split(":") if mount.count(":") > 1 else (mount, "")
    joined = re.sub(r"[,+]", "+" if runtime == "pyxis" else ",", flags)
    return ":".join(filter(None, (*places, joined)))


def _read(plan: Plan, options: Mapping[str, Any]) -> Iterator[str]:
    """Absolute paths of data and tokenizer that no mount has: they are the host's where the host has them."""
    data, tokenizer = plan.job.data, plan.job.data.tokenizer
    paths = [PurePosixPath(path) for path in data.path]
    found = [path.parent for path in paths] if plan.job.framework.data_prefix else paths
    found += [PurePosixPath(path) for path in (tokenizer.path, tokenizer.vocab_file, tokenizer.merges_file) if path]
    for path in dict.fromkeys(found):
        within = any(path != other and path.is_relative_to(other) for other in found)
        if path.is_absolute() and len(path.parts) > 1 and not within and _mount_of(str(path), options) is None:
            yield str(path)


def host_path(path: str, options: Mapping[str, Any]) -> str:
    """Return where the batch script finds `path` of the program: in a container, through the mount that has it."""
    mount = _mount_of(path, options) if "container_image" in options else None
    if mount is None:
        return path
    source, destination = mount
    return str(PurePosixPath(source) / PurePosixPath(path).relative_to(destination))


def _mount_of(path: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Source and destination of the mount that `path` is in."""
    parts = [mount.split(":") for mount in options.get("container_mounts", ())]
    pairs = [(part[0], part[1] if len(part) > 1 else part[0]) for part in parts]
    found = [(source, to) for source, to in pairs if PurePosixPath(path).is_relative_to(to)]
    return max(found, key=lambda pair: len(pair[1]), default=None)


def torchrun(options: Mapping[str, Any]) -> Raw:
    """torchrun by PATH; in a container, which has its own PATH, from the virtual environment if there is one."""
    if "container_image" in options and "virtual_environment" in options:
        return Raw(shell_word(f"{options['virtual_environment']}/bin/torchrun"))
    return Raw("torchrun")
