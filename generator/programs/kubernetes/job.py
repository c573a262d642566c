"""Kubernetes jobs that train: their pods, and the pods' command as a shell script with places.

A command is a list of words that no shell reads, or a shell with a script. What the container and
the controllers set in its environment comes first, as exports.
Source: kubeflow/trainer pkg/controller.v1/pytorch/envvar.go and elastic.go @ v1.9.4,
pkg/runtime/framework/plugins/ torch/torch.go @ v2.3.0; Kubernetes' Job controller
(JOB_COMPLETION_INDEX of indexed jobs).
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import PurePath
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import read_whole
from ...submission.claims import Claim, claims_of_nodes
from ...submission.script import (
    NAME,
    UNKNOWN,
    CommandDocument,
    Piece,
    constant,
    documents_of,
    exported,
    is_template,
    places,
)
from ...text.document import FileText, Kind, YamlDocument, read_yaml
from ...text.source import Source
from ...text.text import Text
from ...text.wording import walk
from ..launching.script import script_of

#: API version of each kind that is read, as of the schemas that are carried.
API_VERSIONS: Final = {
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Job": "batch/v1",
}
#: Resources of which a process each is started; not network devices.
GPU_RESOURCE: Final = re.compile(
    r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|habana\.ai/gaudi[0-9]?|gpu\.intel\.com/.+)"
)
_CONTAINER: Final = "pytorch"  # the one that a PyTorchJob's controller looks for
# of a TrainJob's runtime. Source: kubeflow/trainer pkg/constants/constants.go @ v2.3.0
_NODE: Final = "node"


def label_of(text: str, longest: int) -> str:
    """A label as of DNS that is like a text: small letters, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (plain if plain[:1].isalpha() else f"job-{plain}")[:longest].strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods that are alike."""

    name: str
    at: str  #: where they are described
    count_at: str  #: where their number is written
    count: int | None
    pod: str  #: where their specification is; of a TrainJob, where the trainer's is
    container: str  #: where the container that trains is
    resources: str  #: where its resources are
    gpus: int | None  #: of one pod; None where nothing is written, or no number


def containers_of(
    job: YamlDocument, pod: str, *lists: str
) -> Iterator[tuple[str, dict[str, object]]]:
    """Each container of a pod's specification, with its place."""
    for name in lists or ("containers",):
        yield from job.mappings(f"{pod}/{name}")


def _of_pytorch_job(job: YamlDocument) -> Iterator[Role]:
    for name, at, value in job.entries("spec/pytorchReplicaSpecs"):
        if isinstance(value, dict):
            pod, count_at = f"{at}/template/spec", f"{at}/replicas"
            main = _chosen(job, pod, lambda _, container: container.get("name") == _CONTAINER)
            yield _role(job, str(name), at, count_at, _count(job, count_at), pod, main)


def _of_train_job(job: YamlDocument) -> Iterator[Role]:
    at, count_at = "spec/trainer", "spec/trainer/numNodes"
    count = job.integer(count_at)  # else the runtime's
    yield _role(job, "trainer", at, count_at, count, at, at, f"{at}/resourcesPerNode")


def _of_job_set(job: YamlDocument) -> Iterator[Role]:
    for at, item in job.items("spec/replicatedJobs"):
        pod, pods = f"{at}/template/spec/template/spec", f"{at}/template/spec/parallelism"
        main = _chosen(job, pod, lambda place, _: _gpus(job, f"{place}/resources"))
        jobs, each = _count(job, f"{at}/replicas"), _count(job, pods)
        count = jobs * each if jobs is not None and each is not None else None
        name = str(item.get("name")) if isinstance(item, dict) else at.rpartition("/")[2]
        yield _role(job, name, at, pods, count, pod, main)


def _of_job(job: YamlDocument) -> Iterator[Role]:
    """Indexed pods, which may be one training or a training each."""
    pod = "spec/template/spec"
    main = _chosen(job, pod, lambda place, _: _gpus(job, f"{place}/resources"))
    yield _role(job, "the Job", "spec", "spec/parallelism", None, pod, main)


def _chosen(job: YamlDocument, pod: str, trains: Callable[[str, dict[str, object]], object]) -> str:
    """The place of the container that trains, else of the first."""
    found = list(containers_of(job, pod))
    chosen = [place for place, container in found if trains(place, container)] or [
        place for place, _ in found
    ]
    return next(iter(chosen), f"{pod}/containers/0")


def _role(
    job: YamlDocument,
    name: str,
    at: str,
    count_at: str,
    count: int | None,
    pod: str,
    main: str,
    resources: str = "",
) -> Role:
    place = resources or f"{main}/resources"
    gpus = _gpus(job, place)
    return Role(
        name=name,
        at=at,
        count_at=count_at,
        count=count,
        pod=pod,
        container=main,
        resources=place,
        gpus=gpus,
    )


def _gpus(job: YamlDocument, resources: str) -> int | None:
    found = {number for _, _, number in gpu_requests(job, resources)}
    return found.pop() if len(found) == 1 else None


def _count(job: YamlDocument, name: str) -> int | None:
    """A number, 1 where none is written; None where it is no number."""
    return job.integer(name) if job.value(name) is not None else 1


def gpu_requests(job: YamlDocument, resources: str) -> Iterator[tuple[str, str, int | None]]:
    """Resource, place and number of each request for accelerators; None where it is no number."""
    for part in ("limits", "requests"):
        for name, at, value in job.entries(f"{resources}/{part}"):
            if isinstance(name, str) and GPU_RESOURCE.fullmatch(name):
                number = read_whole(value) if isinstance(value, str) else value
                yield (
                    name,
                    at,
                    number if isinstance(number, int) and not isinstance(number, bool) else None,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob(CommandDocument):
    """A PyTorchJob, TrainJob, JobSet or Indexed Job, with the command of its first training pod."""

    document_kind: ClassVar[Kind] = "Kubernetes job"
    in_image: ClassVar[bool] = True
    is_replicated: ClassVar[bool] = True

    kind_of_job: str
    roles: tuple[Role, ...]  #: the pods

    @property
    def nodes(self) -> int | None:
        """The pods that train; None where their number can't be known, or may change."""
        elastic = self.block("spec/elasticPolicy")
        if elastic.get("minReplicas") != elastic.get("maxReplicas"):
            return None
        counts = [role.count for role in self.trainers]
        return (
            sum(count for count in counts if count is not None)
            if counts and None not in counts
            else None
        )

    @property
    def gpus(self) -> int | None:
        """The accelerators of each pod; None where they differ, or are not written."""
        found = {role.gpus for role in self.trainers}
        return found.pop() if len(found) == 1 else None

    @property
    def has_master(self) -> bool:
        """Return whether one of the pods is called master."""
        return any(role.name.lower() == "master" for role in self.roles)

    @property
    def trainers(self) -> tuple[Role, ...]:
        """The pods of one training.

        Of a JobSet, whose jobs may do different things, those with most GPUs.
        """
        most = (
            max(self.roles, key=lambda role: role.gpus or 0, default=None)
            if self.kind_of_job == "JobSet"
            else None
        )
        return (most,) if most else self.roles

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the job asks for."""
        at = next(((role.count_at, role.resources) for role in self.trainers), ("spec", "spec"))
        return claims_of_nodes(self.nodes, self.gpus, self.locate(at[0]), self.locate(at[1]))


_KIND: Final = re.compile(
    rf"^[\"']?kind[\"']?:[ \t]*[\"']?({'|'.join(API_VERSIONS)})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
_VERSIONS: Final = "|".join(map(re.escape, API_VERSIONS.values()))
_VERSION: Final = re.compile(
    rf"^[\"']?apiVersion[\"']?:[ \t]*[\"']?(?:{_VERSIONS})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
_CONFIG_MAP: Final = re.compile(r"^[\"']?kind[\"']?:[ \t]*[\"']?ConfigMap\b", re.MULTILINE)
_END: Final = "END_OF_CONFIG_MAP"
_INDEXED: Final = re.compile(r"completionMode[\"']?:[ \t]*[\"']?Indexed")
_SHELLS: Final = frozenset({"bash", "sh", "ash", "dash", "zsh"})
_RUNS_TEXT: Final = re.compile(r"-[a-z]*c")
_CHARACTER: Final = re.compile(r"\$\$|.", re.DOTALL)
_QUOTE: Final = "'\"'\"'"  # a quote within quotes
#: Variables that the controllers set: of a PyTorchJob with a master, and of a TrainJob.
OF_MASTER: Final = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_MASTER: Final = (*OF_MASTER, "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK")
OF_TRAINER: Final = (
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
)


def is_training_job(content: str) -> bool:
    """Return whether a file of Kubernetes' has a job that is read, and is no template of one."""
    kinds, known = set(_KIND.findall(content)), _VERSION.search(content) is not None
    trains = kinds != {"Job"} or (_INDEXED.search(content) and GPU_RESOURCE.search(content))
    return bool(kinds) and known and bool(trains) and not is_template(content)


def read_file(file: FileText) -> Iterator[KubernetesJob | Finding]:
    """The jobs of a file, and what is wrong with its text.

    Of text that can't be read to its end, only what is wrong.
    """
    parts = [*documents_of(file.text)]
    maps = [(read_yaml(part), part) for part in parts if _CONFIG_MAP.search(part.content)]
    for part in parts:
        if _KIND.search(part.content):
            source = read_yaml(part)
            data = source.data if isinstance(source.data, dict) else {}
            kind = data.get("kind")
            known = isinstance(kind, str) and data.get("apiVersion") == API_VERSIONS.get(kind)
            if kind == "Job" and not is_training_job(part.content):
                continue
            if known or not source.complete:
                yield from source.findings
            if known and source.complete:
                yield _job(source, part, str(kind), maps)


def _mounted(
    job: KubernetesJob, main: Role, maps: Iterable[tuple[Source, Text]]
) -> Iterator[Piece]:
    """The ConfigMaps' files that the training container mounts, as a script that writes them."""
    containers = [(main.pod, main.container)]
    if job.kind_of_job == "TrainJob":  # of the runtime; the job patches it
        named = (
            at[1:]
            for at, one in walk("", job.source.data)
            if isinstance(one, dict) and one.get("name") == _NODE
        )
        containers = [(at.rpartition("/containers/")[0], at) for at in named]
    for pod, container in containers:
        for at, volume in job.mappings(f"{pod}/volumes"):
            mounts = (mount for _, mount in job.mappings(f"{container}/volumeMounts"))
            here = [mount for mount in mounts if mount.get("name") == volume.get("name")]
            of = job.block(f"{at}/configMap")
            known = (of.get("name"), job.value("metadata/namespace"))
            for source, text in maps if here and of else ():
                view = YamlDocument(source=source)
                if (view.value("metadata/name"), view.value("metadata/namespace")) == known:
                    yield from _files(view, text, here, of.get("items"))


def _files(
    view: YamlDocument, text: Text, mounts: list[dict[str, object]], items: object
) -> Iterator[Piece]:
    """A ConfigMap's files where it is mounted: all, or a volume's `items`, by path."""
    chosen = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    paths = {one.get("key"): one.get("path") for one in chosen}
    for key, at, content in view.entries("data"):
        name = paths.get(key) if chosen else key
        for mount in mounts if name else ():
            whole = "subPath" not in mount
            if whole or mount["subPath"] == name:
                path = f"{mount.get('mountPath')}/{name}" if whole else str(mount.get("mountPath"))
                yield f"cat >{shlex.quote(path)} <<'{_END}'\n", constant(view.locate_key(at))
                yield f"{content}\n{_END}\n", places(view.source, text, f"/{at}", str(content))


_ROLES: Final = {
    "PyTorchJob": _of_pytorch_job,
    "TrainJob": _of_train_job,
    "JobSet": _of_job_set,
    "Job": _of_job,
}


def _job(
    source: Source, text: Text, kind: str, maps: Iterable[tuple[Source, Text]]
) -> KubernetesJob:
    roles = tuple(_ROLES[kind](YamlDocument(source=source)))
    job = KubernetesJob(source=source, script=None, kind_of_job=kind, roles=roles)
    for main in job.trainers[:1]:
        if pieces := _command(job, text, main):
            set_before = (
                *_mounted(job, main, maps),
                *_controllers(job),
                *_variables(job, main.container),
            )
            return replace(job, script=script_of([*set_before, *pieces], text))
    return job


def _command(job: YamlDocument, text: Text, role: Role) -> list[Piece]:
    """Return what a container starts: the text that a shell is given, else its words, quoted."""
    words: list[tuple[str, str]] = []
    for name in ("command", "args"):
        words += [(str(item), at) for at, item in job.items(f"{role.container}/{name}")]
    texts = [word for word, _ in words]
    if texts and PurePath(texts[0]).name in _SHELLS:
        after = next(
            (index + 1 for index, word in enumerate(texts) if _RUNS_TEXT.fullmatch(word)),
            len(texts),
        )
        if after < len(texts):
            script, at = words[after]
            reduced, where = _reduced(script, places(job.source, text, f"/{at}", script))
            if after + 1 == len(texts):
                return [(reduced, where)] if script.strip() else []
            before, behind = words[:after], words[after + 1 :]
            return [
                *_words(job, before),
                _quoted(reduced, where),
                (" ", where),
                *_words(job, behind),
            ]
    return list(_words(job, words))


def _words(job: YamlDocument, words: Iterable[tuple[str, str]]) -> Iterator[Piece]:
    """Words with their places, as words of bash."""
    return ((f"{_word(word)} ", constant(job.locate(at))) for word, at in words)


def _reduced(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as the shell gets it: Kubernetes makes `$` of `$$`."""
    kept = [match.start() for match in _CHARACTER.finditer(script)]
    return "".join(script[index] for index in kept), lambda offset: where(
        kept[min(offset, len(kept) - 1)]
    )


def _quoted(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as one word in single quotes."""
    parts = ["'", *(_QUOTE if char == "'" else char for char in script), "'"]
    ends = list(accumulate(map(len, parts)))
    return "".join(parts), lambda offset: where(max(bisect_right(ends, offset) - 1, 0))


def _word(text: str) -> str:
    """A command's word as bash has it; quoted where Kubernetes or envsubst expands it."""
    if "$" not in text:
        return shlex.quote(text)
    variables = re.sub(r"\$\((\w+)\)", r"${\1}", text)
    return '"' + re.sub(r'["\\`]', r"\\\g<0>", variables) + '"'


def _variables(job: YamlDocument, container: str) -> Iterator[Piece]:
    """A container's environment: literal values, and those from elsewhere, which aren't known."""
    for at, item in job.mappings(f"{container}/env"):
        name, value = item.get("name"), item.get("value")
        if isinstance(name, str) and NAME.fullmatch(name):
            known = isinstance(value, str) and "$" not in value
            written = shlex.quote(str(value)) if known else UNKNOWN
            yield exported(name, written, job.locate(f"{at}/{'value' if known else 'name'}"))


def _controllers(job: KubernetesJob) -> Iterator[Piece]:
    """Return what the controller of a kind sets in every pod that trains."""
    names: tuple[str, ...] = ("JOB_COMPLETION_INDEX",)
    if job.kind_of_job == "TrainJob":
        names = OF_TRAINER
    elif job.kind_of_job == "PyTorchJob":
        elastic = (
            ("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND")
            if job.value("spec/elasticPolicy") is not None
            else ()
        )
        names = (
            "PYTHONUNBUFFERED",
            "PET_NNODES",
            "PET_NPROC_PER_NODE",
            *(_MASTER if job.has_master else ()),
            *elastic,
        )
    return (exported(name, UNKNOWN, job.locate_key("kind")) for name in names)
