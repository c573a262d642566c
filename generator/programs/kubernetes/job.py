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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import accumulate
from math import prod
from pathlib import PurePath
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...findings import Finding, Location
from ...numerals import read_whole
from ...patterns import lazy_pattern
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
from ...text.wording import counted, walk
from ..launching.script import script_of
from .kinds import HOLDERS, KINDS, OF_MASTER, HolderKind, PodKind, holder_of, kind_of

#: Resources of which a process each is started; not network devices.
GPU_RESOURCE: Final = lazy_pattern(
    r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|habana\.ai/gaudi[0-9]?|gpu\.intel\.com/.+)"
)
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


def _roles(job: YamlDocument, row: PodKind) -> Iterator[Role]:
    """The pods of an object, by the row of its kind."""
    for pattern in row.roles:
        for name, at in _places(job, pattern):
            if not isinstance(job.value(at), dict):
                continue
            pod = f"{at}/{row.template}" if row.template else at
            count, count_at = _number_of_pods(job, row, at)
            main = _chosen(job, pod, row.container) if row.template else at
            resources = f"{at}/{row.resources}" if row.resources else f"{main}/resources"
            yield Role(
                name=row.label or name,
                at=at,
                count_at=count_at,
                count=count,
                pod=pod,
                container=main,
                resources=resources,
                gpus=_gpus(job, resources),
            )


def _places(job: YamlDocument, pattern: str) -> Iterator[tuple[str, str]]:
    """Name and place of each part of an object that is at a place, where `*` is each entry.

    An entry of a mapping has its key for a name, an item of a list what it calls itself.
    """
    parent, several, rest = pattern.partition("/*")
    if not several:
        yield pattern.rpartition("/")[2], pattern
        return
    entries = [(str(key), at) for key, at, _ in job.entries(parent)]
    entries += [
        (str(item.get("name") or item.get("groupName") or at.rpartition("/")[2]), at)
        for at, item in job.mappings(parent)
    ]
    yield from ((name, f"{at}{rest}") for name, at in entries)


def _number_of_pods(job: YamlDocument, row: PodKind, at: str) -> tuple[int | None, str]:
    """How many pods a role has, None where nobody can know it, and where that is written."""
    names = [f"{at}/{name}" for name in row.counts]
    if not names:
        return None, f"{at}/parallelism"
    if row.resources:  # patches a runtime, which has the number where none is written
        return job.integer(names[0]), names[0]
    numbers = [_count(job, name) for name in names]
    for index, name in enumerate(names):
        completions = job.integer(name.replace("parallelism", "completions"))
        number = numbers[index]
        if name.endswith("/parallelism") and completions is not None and number is not None:
            # of more completions, which are one training isn't known
            numbers[index] = completions if completions <= number else None
    counts = [number for number in numbers if number is not None]
    return (prod(counts) if len(counts) == len(numbers) else None), names[0]


def _chosen(job: YamlDocument, pod: str, name: str) -> str:
    """The place of the container that trains, by its name or its GPUs; else of the first."""
    containers = list(containers_of(job, pod))
    chosen = [
        at
        for at, container in containers
        if (container.get("name") == name if name else _gpus(job, f"{at}/resources"))
    ]
    return next(iter([*chosen, *(at for at, _ in containers)]), f"{pod}/containers/0")


def _gpus(job: YamlDocument, resources: str) -> int | None:
    requested = {number for _, _, number in gpu_requests(job, resources)}
    return requested.pop() if len(requested) == 1 else None


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


_INSTANCE_TYPES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def instance_types(job: YamlDocument, pod: str) -> Iterator[str]:
    """The types of machines of which a pod needs one."""
    for name, _, value in job.entries(f"{pod}/nodeSelector"):
        if name in _INSTANCE_TYPES and isinstance(value, str):
            yield value
    required = f"{pod}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    for term, _ in job.items(f"{required}/nodeSelectorTerms"):
        for _, test in job.mappings(f"{term}/matchExpressions"):
            if test.get("key") in _INSTANCE_TYPES and test.get("operator") == "In":
                values = test.get("values")
                yield from map(str, values if isinstance(values, list) else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob(CommandDocument):
    """An object whose pods train, with the command of the pod that starts the training."""

    document_kind: ClassVar[Kind] = "Kubernetes job"
    in_image: ClassVar[bool] = True
    is_replicated: ClassVar[bool] = True

    row: PodKind
    roles: tuple[Role, ...]  #: the pods
    #: folders of the training container that are ConfigMaps of the file, with all their names
    config_folders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: those that are ConfigMaps of other files, with the names of these
    other_config_folders: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind_of_job(self) -> str:
        """The kind, as the object names it."""
        return self.row.name

    def node_types(self) -> Iterator[tuple[str, str]]:
        """The types of machines that selectors of its pods name, with their places."""
        for role in self.roles:
            for name, place, value in self.entries(f"{role.pod}/nodeSelector"):
                if name in _INSTANCE_TYPES and isinstance(value, str):
                    yield place, value

    @property
    def has_slots(self) -> bool:
        """Whether its launcher starts the processes, one for each slot of its workers."""
        return self.kind_of_job == "MPIJob"

    @property
    def is_batch_job(self) -> bool:
        """Whether it is an Indexed Job of Kubernetes itself."""
        return self.row.versions == ("batch/v1",)

    @property
    def nodes(self) -> int | None:
        """The pods that train; None where their number can't be known, or may change."""
        elastic = self.block("spec/elasticPolicy")
        if elastic.get("minReplicas") != elastic.get("maxReplicas"):
            return None
        counts = [role.count for role in self.trainers]
        if counts and None not in counts:
            return sum(count for count in counts if count is not None)
        return None

    @property
    def gpus(self) -> int | None:
        """The accelerators of each pod; None where they differ, or are not written."""
        counts = {role.gpus for role in self.trainers}
        return counts.pop() if len(counts) == 1 else None

    @property
    def starts_elsewhere(self) -> bool:
        """Whether what the command starts isn't started in every pod that trains."""
        return self.row.ranks in ("mpirun", "ray")

    @property
    def has_master(self) -> bool:
        """Return whether one of the pods is called master."""
        return any(role.name.lower() == "master" for role in self.roles)

    @property
    def trainers(self) -> tuple[Role, ...]:
        """The pods of one training."""
        starts = self.row.command.lower()
        as_worker = self.value("spec/runLauncherAsWorker") is True
        roles = tuple(role for role in self.roles if as_worker or role.name.lower() != starts)
        if self.row.trains == "all" or not any(role.gpus for role in roles):
            return roles if self.row.trains != "most GPUs" else roles[:1]
        with_gpus = [role for role in roles if role.gpus]
        if self.row.trains == "with GPUs":
            return tuple(with_gpus)
        return (max(with_gpus, key=lambda role: role.gpus or 0),)

    @property
    def starter(self) -> Role | None:
        """The pods whose command starts the training."""
        starts = self.row.command.lower()
        named = (role for role in self.roles if role.name.lower() == starts)
        return next(named, next(iter(self.trainers), None))

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the job asks for."""
        first = next(iter(self.trainers), None)
        most = max(self.trainers, key=lambda role: role.count or 0, default=None)
        counted_at, gpus_at = (most.count_at, first.resources) if most and first else ("spec",) * 2
        places = (self.locate(counted_at), self.locate(gpus_at))
        started, nodes = self.processes_per_pod, self.nodes
        for claim in claims_of_nodes(nodes, self.gpus, *places):
            if claim.quantity == "GPUs" and nodes and started and started < (self.gpus or 0):
                key = self.row.processes
                text = f"{counted(nodes, 'node')} × {key.rpartition('/')[2]} {started}"
                yield Claim("GPUs", nodes * started, self.locate(key), text)
            else:
                yield claim

    @property
    def processes_per_pod(self) -> int | None:
        """The processes that torchrun starts in a pod by the job's own count; None where it is told
        otherwise, or there is none.
        """
        at = self.row.processes
        calls = [call for one in self.launches for call in one.calls if call.program == "torchrun"]
        told = any(call.opaque or call.has("--nproc-per-node") for call in calls)
        return read_whole(str(self.value(at))) if at and calls and not told else None


_ROWS: Final[tuple[PodKind | HolderKind, ...]] = (*KINDS, *HOLDERS)
_NAMES: Final = "|".join(dict.fromkeys(row.name for row in _ROWS))
_ANY_VERSION: Final = "|".join(
    dict.fromkeys(re.escape(version) for row in _ROWS for version in row.versions)
)
_KIND: Final = lazy_pattern(
    rf"^[\"']?kind[\"']?:[ \t]*[\"']?({_NAMES})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
_VERSION: Final = lazy_pattern(
    rf"^[\"']?apiVersion[\"']?:[ \t]*[\"']?(?:{_ANY_VERSION})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
#: Kinds that are a training of several pods whatever they ask for.
_TRAIN: Final = frozenset(row.name for row in KINDS if not row.needs_gpus)
_HOLD: Final = frozenset(row.name for row in HOLDERS)
_HELD: Final = lazy_pattern(rf"\bkind[\"']?:[ \t]*[\"']?({_NAMES})\b")
_CONFIG_MAP: Final = lazy_pattern(r"^[\"']?kind[\"']?:[ \t]*[\"']?ConfigMap\b", re.MULTILINE)
_END: Final = "END_OF_CONFIG_MAP"
_MOST_HELD: Final = 3  # objects in objects
_VOLCANO: Final = lazy_pattern(r"\bbatch\.volcano\.sh/")
_INDEXED: Final = lazy_pattern(r"completionMode[\"']?:[ \t]*[\"']?Indexed")
_SHELLS: Final = frozenset({"bash", "sh", "ash", "dash", "zsh"})
_RUNS_TEXT: Final = lazy_pattern(r"-[a-z]*c")
_CHARACTER: Final = lazy_pattern(r"\$\$|.", re.DOTALL)
_QUOTE: Final = "'\"'\"'"  # a quote within quotes
#: What the controller of a PyTorchJob with a master sets beside what it sets in each.
_MASTER: Final = (*OF_MASTER, "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK")


def is_training_job(content: str) -> bool:
    """Return whether a file of Kubernetes' has a job that is read, and is no template of one."""
    kinds = set(_KIND.findall(content))
    if not kinds or not _VERSION.search(content) or is_template(content):
        return False
    if kinds & _HOLD:
        kinds = set(_HELD.findall(content)) - _HOLD
    on_gpus = GPU_RESOURCE.search(content) is not None
    return bool(kinds & _TRAIN) or (on_gpus and (kinds != {"Job"} or _trains(content)))


def _trains(content: str) -> bool:
    """Whether a Job is Indexed, or of a scheduler that starts several pods at once."""
    return _INDEXED.search(content) is not None or _VOLCANO.search(content) is not None


def read_file(file: FileText) -> Iterator[KubernetesJob | Finding]:
    """The jobs of a file, and what is wrong with its text.

    Of text that can't be read to its end, only what is wrong.
    """
    parts = [*documents_of(file.text)]
    maps = [(read_yaml(part), part) for part in parts if _CONFIG_MAP.search(part.content)]
    for part in parts:
        if _KIND.search(part.content):
            source = read_yaml(part)
            held = [*_objects(YamlDocument(source=source))]
            training = [(root, row) for root, row in held if _is_training(source, root, row)]
            if training or not (held or source.complete):
                yield from source.findings
            if source.complete:
                for root, row in training:
                    yield _job(source, part, root, row, maps)


def _is_training(source: Source, root: str, row: PodKind) -> bool:
    """Whether an object of a kind that does other things, too, has GPUs and several pods."""
    view = YamlDocument(source=source, root=root)
    if not row.needs_gpus:
        return True
    if row.versions == ("batch/v1",) and view.value("spec/completionMode") != "Indexed":
        return False
    # A number that is none, such as half a GPU, is for a rule to refuse.
    requests = (gpu_requests(view, role.resources) for role in _roles(view, row))
    return any(value is None or value > 0 for each in requests for _, _, value in each)


def _objects(view: YamlDocument, depth: int = 0) -> Iterator[tuple[str, PodKind]]:
    """Place and row of the object, and of those that it holds."""
    data = view.value("")
    if row := kind_of(data):
        yield view.root, row
    if (holder := holder_of(data)) and depth < _MOST_HELD:
        for _, at in _places(view, holder.objects):
            inside = YamlDocument(source=view.source, root=view.pointer(at)[1:])
            yield from _objects(inside, depth + 1)


def _mounted(
    job: KubernetesJob, main: Role, maps: Iterable[tuple[Source, Text]]
) -> Iterator[Piece]:
    """The ConfigMaps' files that the training container mounts, as a script that writes them."""
    for view, text, mounts, items in _mounts(job, main, maps):
        yield from _files(view, text, mounts, items)


def _config_folders(
    job: KubernetesJob, main: Role, maps: Iterable[tuple[Source, Text]]
) -> dict[str, frozenset[str]]:
    """The folders that are ConfigMaps of the file, each with the names of all its files."""
    folders: dict[str, frozenset[str]] = {}
    for view, _, mounts, items in _mounts(job, main, maps):
        names = {str(key) for part in ("data", "binaryData") for key, _, _ in view.entries(part)}
        if isinstance(items, list):
            names = {str(item.get("path")) for item in items if isinstance(item, dict)}
        for mount in mounts:
            path = mount.get("mountPath")
            if isinstance(path, str) and not {"subPath", "subPathExpr"} & {*mount}:
                folders[path.rstrip("/")] = frozenset(names)
    return folders


def _other_config_folders(job: KubernetesJob, main: Role) -> dict[str, str]:
    """The folders that are whole ConfigMaps, with the names of these."""
    folders: dict[str, str] = {}
    for config_map, mounts in _mounted_maps(job, main):
        name = config_map.get("name")
        for mount in mounts:
            path = mount.get("mountPath")
            is_whole = not {"subPath", "subPathExpr"} & {*mount}
            if isinstance(name, str) and isinstance(path, str) and is_whole:
                folders[path.rstrip("/")] = name
    return folders


def _mounts(
    job: KubernetesJob, main: Role, maps: Iterable[tuple[Source, Text]]
) -> Iterator[tuple[YamlDocument, Text, list[dict[str, object]], object]]:
    """The ConfigMaps of the file that the training container mounts, where, and which of their
    keys.
    """
    for config_map, mounts in _mounted_maps(job, main):
        known = (config_map.get("name"), job.value("metadata/namespace"))
        for source, text in maps:
            view = YamlDocument(source=source)
            if (view.value("metadata/name"), view.value("metadata/namespace")) == known:
                yield view, text, mounts, config_map.get("items")


def _mounted_maps(
    job: KubernetesJob, main: Role
) -> Iterator[tuple[Mapping[str, object], list[dict[str, object]]]]:
    """The volumes of ConfigMaps that the training container mounts, and where."""
    containers = [(main.pod, main.container)]
    if job.kind_of_job == "TrainJob":  # of the runtime; the job patches it
        named = (
            at[1:]
            for at, one in walk("", job.value(""))
            if isinstance(one, dict) and one.get("name") == _NODE
        )
        containers = [(at.rpartition("/containers/")[0], at) for at in named]
    for pod, container in containers:
        for at, volume in job.mappings(f"{pod}/volumes"):
            mounts = (mount for _, mount in job.mappings(f"{container}/volumeMounts"))
            here = [mount for mount in mounts if mount.get("name") == volume.get("name")]
            config_map = job.block(f"{at}/configMap")
            if here and config_map:
                yield config_map, here


def _files(
    view: YamlDocument, text: Text, mounts: list[dict[str, object]], items: object
) -> Iterator[Piece]:
    """A ConfigMap's files where it is mounted: all, or a volume's `items`, by path."""
    chosen = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    paths = {one.get("key"): one.get("path") for one in chosen}
    for key, at, content in view.entries("data"):
        name = paths.get(key) if chosen else key
        if name:
            for mount in mounts:
                whole = "subPath" not in mount
                if whole or mount["subPath"] == name:
                    path = (
                        f"{mount.get('mountPath')}/{name}" if whole else str(mount.get("mountPath"))
                    )
                    yield f"cat >{shlex.quote(path)} <<'{_END}'\n", constant(view.locate_key(at))
                    yield f"{content}\n{_END}\n", places(view.source, text, f"/{at}", str(content))


def _job(
    source: Source, text: Text, root: str, row: PodKind, maps: Iterable[tuple[Source, Text]]
) -> KubernetesJob:
    roles = tuple(_roles(YamlDocument(source=source, root=root), row))
    job = KubernetesJob(source=source, root=root, script=None, row=row, roles=roles)
    main = job.starter
    pieces = _command(job, text, main) if main else []
    if not main or not pieces:
        return job
    before = (*_mounted(job, main, maps), *_controllers(job), *_variables(job, main.container))
    folders = _config_folders(job, main, maps)
    others = {
        path: name for path, name in _other_config_folders(job, main).items() if path not in folders
    }
    return replace(
        job,
        script=script_of([*before, *pieces], text),
        config_folders=folders,
        other_config_folders=others,
    )


def _command(job: KubernetesJob, text: Text, role: Role) -> list[Piece]:
    """Return the command that starts the training, as text.

    It is the script that the controller is given, else the text that a container's shell is given,
    else the words of the container's command, quoted.
    """
    if entry := job.text(job.row.script) if job.row.script else None:
        return [(entry, places(job.source, text, job.pointer(job.row.script), entry))]
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
            reduced, where = _reduced(script, places(job.source, text, job.pointer(at), script))
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
    names = job.row.sets
    if job.kind_of_job == "PyTorchJob":
        elastic = job.value("spec/elasticPolicy") is not None
        names += _MASTER if job.has_master else ()
        names += ("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND") if elastic else ()
    if job.value("spec/plugins/pytorch") is not None:  # of Volcano's
        names += OF_MASTER
    return (exported(name, UNKNOWN, job.locate_key("kind")) for name in names)
