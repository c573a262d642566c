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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import prod
from pathlib import PurePath
from typing import ClassVar, Final, NamedTuple

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

#: Resources of which each gets a process; network devices are others.
GPU_RESOURCE: Final = lazy_pattern(
    r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|habana\.ai/gaudi[0-9]?|gpu\.intel\.com/.+)"
)
#: The container that trains in the runtime of a TrainJob. Source: kubeflow/trainer
#: pkg/constants/constants.go @ v2.3.0.
_NODE: Final = "node"


def label_of(text: str, longest: int) -> str:
    """A DNS label made of a text: small letters, digits and dashes, a letter first."""
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
            container = _main_container(job, pod, row.container) if row.template else at
            resources = f"{at}/{row.resources}" if row.resources else f"{container}/resources"
            yield Role(
                name=row.label or name,
                at=at,
                count_at=count_at,
                count=count,
                pod=pod,
                container=container,
                resources=resources,
                gpus=_gpus(job, resources),
            )


def _places(job: YamlDocument, pattern: str) -> Iterator[tuple[str, str]]:
    """Name and place of each part of an object that a pattern means, where `*` is each entry.

    An entry of a mapping has its key for a name, an item of a list what it calls itself.
    """
    parent, several, rest = pattern.partition("/*")
    if not several:
        yield pattern.rpartition("/")[2], pattern
        return
    for key, at, _ in job.entries(parent):
        yield str(key), f"{at}{rest}"
    for at, item in job.mappings(parent):
        # Ray's groups of workers have a groupName
        name = item.get("name") or item.get("groupName") or at.rpartition("/")[2]
        yield str(name), f"{at}{rest}"


def _number_of_pods(job: YamlDocument, row: PodKind, at: str) -> tuple[int | None, str]:
    """How many pods a role has, None where nobody can know it, and where that is written."""
    names = [f"{at}/{name}" for name in row.counts]
    if not names:
        return None, f"{at}/parallelism"
    if row.resources:  # a TrainJob, whose runtime has the number where none is written here
        return job.integer(names[0]), names[0]
    numbers = [_count(job, name) for name in names]
    known = [number for number in numbers if number is not None]
    return (prod(known) if len(known) == len(numbers) else None), names[0]


def _count(job: YamlDocument, name: str) -> int | None:
    """How many pods or replicas there are at once, 1 where nothing is written; None if unknown."""
    number = job.integer(name) if job.value(name) is not None else 1
    if number is None or not name.endswith("/parallelism"):
        return number
    completions = job.integer(name.removesuffix("parallelism") + "completions")
    if completions is None:
        return number
    # More completions than `parallelism` run one after another, as one training or as several.
    return completions if completions <= number else None


def _main_container(job: YamlDocument, pod: str, name: str) -> str:
    """The place of the container that trains, by its name or its GPUs; else of the first."""
    containers = list(containers_of(job, pod))
    for at, container in containers:
        trains = container.get("name") == name if name else _gpus(job, f"{at}/resources")
        if trains:
            return at
    return next((at for at, _ in containers), f"{pod}/containers/0")


def _gpus(job: YamlDocument, resources: str) -> int | None:
    """The GPUs of a container; None where limits and requests differ, or say nothing."""
    requested = {number for _, _, number in gpu_requests(job, resources)}
    return requested.pop() if len(requested) == 1 else None


def gpu_requests(job: YamlDocument, resources: str) -> Iterator[tuple[str, str, int | None]]:
    """Resource, place and number of each request for accelerators; None where it is no number."""
    for part in ("limits", "requests"):
        for name, at, value in job.entries(f"{resources}/{part}"):
            if isinstance(name, str) and GPU_RESOURCE.fullmatch(name):
                number = read_whole(value) if isinstance(value, str) else value
                if isinstance(number, bool) or not isinstance(number, int):
                    number = None
                yield name, at, number


#: Labels of nodes that have the cloud's type of machine; Kubernetes 1.17 deprecates the second.
_INSTANCE_TYPES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def instance_types(job: YamlDocument, pod: str) -> Iterator[str]:
    """The types of machines that a pod may run on, where it names some."""
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
    roles: tuple[Role, ...]
    #: folders of the training container that are ConfigMaps of this file, with the names of the
    #: files in each
    config_folders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: folders that are ConfigMaps which aren't in this file, with the ConfigMap's name
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
        starter = self.row.command.lower()
        starter_trains = self.value("spec/runLauncherAsWorker") is True  # of an MPIJob
        roles = tuple(role for role in self.roles if starter_trains or role.name.lower() != starter)
        with_gpus = tuple(role for role in roles if role.gpus)
        match self.row.trains:
            case "all":
                return roles
            case "with GPUs":
                return with_gpus or roles
            case "most GPUs":
                if not with_gpus:
                    return roles[:1]
                return (max(with_gpus, key=lambda role: role.gpus or 0),)

    @property
    def starter(self) -> Role | None:
        """The pods whose command starts the training."""
        starter = self.row.command.lower()
        named = (role for role in self.roles if role.name.lower() == starter)
        return next(named, next(iter(self.trainers), None))

    def claims(self) -> Iterator[Claim]:
        """The nodes and GPUs that the job asks for."""
        counted_at = gpus_at = "spec"
        if self.trainers:
            counted_at = max(self.trainers, key=lambda role: role.count or 0).count_at
            gpus_at = self.trainers[0].resources
        places = (self.locate(counted_at), self.locate(gpus_at))
        started, nodes = self.processes_per_pod, self.nodes
        for claim in claims_of_nodes(nodes, self.gpus, *places):
            if claim.quantity == "GPUs" and nodes and started and started < (self.gpus or 0):
                # GPUs without a process aren't used (KUB020 says so)
                key = self.row.processes
                text = f"{counted(nodes, 'node')} × {key.rpartition('/')[2]} {started}"
                yield Claim("GPUs", nodes * started, self.locate(key), text)
            else:
                yield claim

    @property
    def processes_per_pod(self) -> int | None:
        """How many processes the job's own count has torchrun start in a pod.

        None where there is no torchrun, or where its option overrides the count.
        """
        at = self.row.processes
        calls = [
            call for launch in self.launches for call in launch.calls if call.program == "torchrun"
        ]
        if not at or not calls:
            return None
        is_overridden = any(call.opaque or call.has("--nproc-per-node") for call in calls)
        return None if is_overridden else read_whole(str(self.value(at)))


# Signs in a file's text, which tell whether it is worth being read as YAML.

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
_ALWAYS_TRAIN: Final = frozenset(row.name for row in KINDS if not row.needs_gpus)
_HOLDER_NAMES: Final = frozenset(row.name for row in HOLDERS)
_KIND_AT_ANY_DEPTH: Final = lazy_pattern(rf"\bkind[\"']?:[ \t]*[\"']?({_NAMES})\b")
_CONFIG_MAP: Final = lazy_pattern(r"^[\"']?kind[\"']?:[ \t]*[\"']?ConfigMap\b", re.MULTILINE)
_VOLCANO: Final = lazy_pattern(r"\bbatch\.volcano\.sh/")
_INDEXED: Final = lazy_pattern(r"completionMode[\"']?:[ \t]*[\"']?Indexed")

_DEEPEST: Final = 3  #: how many objects deep objects in objects are read
_END: Final = "END_OF_CONFIG_MAP"  #: of the here-document of a ConfigMap's file
_SHELLS: Final = frozenset({"bash", "sh", "ash", "dash", "zsh"})
_RUNS_TEXT: Final = lazy_pattern(r"-[a-z]*c")  #: a shell's options before the text that it runs
_CHARACTER: Final = lazy_pattern(r"\$\$|.", re.DOTALL)
_QUOTE: Final = "'\"'\"'"  #: a single quote within single quotes
#: What the controller of a PyTorchJob with a master sets, besides what it sets in every PyTorchJob.
_MASTER: Final = (*OF_MASTER, "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK")


def is_training_job(content: str) -> bool:
    """Return whether a file has a Kubernetes job that is read, and isn't a template of one."""
    kinds = set(_KIND.findall(content))
    if not kinds or not _VERSION.search(content) or is_template(content):
        return False
    if kinds & _HOLDER_NAMES:
        kinds = set(_KIND_AT_ANY_DEPTH.findall(content)) - _HOLDER_NAMES
    if kinds & _ALWAYS_TRAIN:
        return True
    if GPU_RESOURCE.search(content) is None:
        return False
    return kinds != {"Job"} or _has_pods_together(content)


def _has_pods_together(content: str) -> bool:
    """Whether a Job is Indexed, or of a scheduler that starts several pods at once."""
    return _INDEXED.search(content) is not None or _VOLCANO.search(content) is not None


def read_file(file: FileText) -> Iterator[KubernetesJob | Finding]:
    """The jobs of a file, and what is wrong with its text.

    Where the text can't be read to its end, only what is wrong.
    """
    documents = [*documents_of(file.text)]
    maps = [
        (read_yaml(document), document)
        for document in documents
        if _CONFIG_MAP.search(document.content)
    ]
    for document in documents:
        if not _KIND.search(document.content):
            continue
        source = read_yaml(document)
        objects = [*_objects(YamlDocument(source=source))]
        training = [(root, row) for root, row in objects if _is_training(source, root, row)]
        # Below the fault nothing could be read: neither a kind, nor the pods of a job.
        shows_training = not objects or is_training_job(document.content)
        if training or (not source.complete and shows_training):
            yield from source.findings
        if source.complete:
            for root, row in training:
                yield _job(source, document, root, row, maps)


def _is_training(source: Source, root: str, row: PodKind) -> bool:
    """Whether an object trains: always for most kinds, else if it has GPUs and several pods."""
    if not row.needs_gpus:
        return True
    view = YamlDocument(source=source, root=root)
    if row.versions == ("batch/v1",) and view.value("spec/completionMode") != "Indexed":
        return False
    for role in _roles(view, row):
        # half a GPU, of which `number` is None, is for a rule to refuse
        if any(number is None or number > 0 for *_, number in gpu_requests(view, role.resources)):
            return True
    return False


def _objects(view: YamlDocument, depth: int = 0) -> Iterator[tuple[str, PodKind]]:
    """Place and row of the object, and of those that it holds."""
    data = view.value("")
    row, holder = kind_of(data), holder_of(data)
    if row is not None:
        yield view.root, row
    if holder is not None and depth < _DEEPEST:
        for _, at in _places(view, holder.objects):
            inside = YamlDocument(source=view.source, root=view.pointer(at)[1:])
            yield from _objects(inside, depth + 1)


class _VolumeOfMap(NamedTuple):
    """A volume of a pod that is a ConfigMap."""

    config_map: Mapping[str, object]  #: the volume's `configMap`: its name, and perhaps `items`
    mounts: list[dict[str, object]]  #: where the training container mounts it


class _MountedMap(NamedTuple):
    """A ConfigMap of the same file that the training container mounts."""

    data: YamlDocument  #: the ConfigMap
    text: Text  #: its text in the file
    mounts: list[dict[str, object]]
    #: the volume's list of keys with their paths; without one, all keys are files
    items: list[dict[str, object]] | None


def _volumes_of_maps(job: KubernetesJob, main: Role) -> Iterator[_VolumeOfMap]:
    """The volumes of ConfigMaps that the training container mounts."""
    containers = [(main.pod, main.container)]
    if job.kind_of_job == "TrainJob":  # the pods are its runtime's, which the job patches
        patches = (
            at[1:]
            for at, part in walk("", job.value(""))
            if isinstance(part, dict) and part.get("name") == _NODE
        )
        containers = [(at.rpartition("/containers/")[0], at) for at in patches]
    for pod, container in containers:
        for at, volume in job.mappings(f"{pod}/volumes"):
            all_mounts = (mount for _, mount in job.mappings(f"{container}/volumeMounts"))
            mounts = [mount for mount in all_mounts if mount.get("name") == volume.get("name")]
            config_map = job.block(f"{at}/configMap")
            if mounts and config_map:
                yield _VolumeOfMap(config_map, mounts)


def _mounted_maps(
    job: KubernetesJob, main: Role, maps: Iterable[tuple[Source, Text]]
) -> Iterator[_MountedMap]:
    """Those of the file's ConfigMaps that the training container mounts."""
    for config_map, mounts in _volumes_of_maps(job, main):
        wanted = (config_map.get("name"), job.value("metadata/namespace"))
        items = config_map.get("items")
        mappings = None
        if isinstance(items, list):
            mappings = [item for item in items if isinstance(item, dict)]
        for source, text in maps:
            data = YamlDocument(source=source)
            if (data.value("metadata/name"), data.value("metadata/namespace")) == wanted:
                yield _MountedMap(data, text, mounts, mappings)


def _folders(mounts: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Where a whole volume is mounted, and not a file of it."""
    for mount in mounts:
        path = mount.get("mountPath")
        if isinstance(path, str) and "subPath" not in mount and "subPathExpr" not in mount:
            yield path.rstrip("/")


def _config_folders(maps: Iterable[_MountedMap]) -> dict[str, frozenset[str]]:
    """The folders that are ConfigMaps of the file, each with the names of all its files."""
    folders: dict[str, frozenset[str]] = {}
    for mounted in maps:
        if mounted.items is not None:
            names = {str(item.get("path")) for item in mounted.items}
        else:
            entries = (*mounted.data.entries("data"), *mounted.data.entries("binaryData"))
            names = {str(key) for key, _, _ in entries}
        folders |= dict.fromkeys(_folders(mounted.mounts), frozenset(names))
    return folders


def _all_config_folders(job: KubernetesJob, main: Role) -> dict[str, str]:
    """The folders that are ConfigMaps of this file or another, with the ConfigMaps' names."""
    folders: dict[str, str] = {}
    for config_map, mounts in _volumes_of_maps(job, main):
        name = config_map.get("name")
        if isinstance(name, str):
            folders |= dict.fromkeys(_folders(mounts), name)
    return folders


def _written_files(mounted: _MountedMap) -> Iterator[Piece]:
    """A script that writes a ConfigMap's files to where it is mounted."""
    paths = {item.get("key"): item.get("path") for item in mounted.items or ()}
    for key, at, content in mounted.data.entries("data"):
        name = paths.get(key) if mounted.items else key
        if not name:
            continue
        where = places(mounted.data.source, mounted.text, f"/{at}", str(content))
        for mount in mounted.mounts:
            if "subPath" not in mount:
                path = f"{mount.get('mountPath')}/{name}"
            elif mount["subPath"] == name:  # this file alone, under the mount's own path
                path = str(mount.get("mountPath"))
            else:
                continue
            yield f"cat >{shlex.quote(path)} <<'{_END}'\n", constant(mounted.data.locate_key(at))
            yield f"{content}\n{_END}\n", where


def _job(
    source: Source, text: Text, root: str, row: PodKind, maps: Iterable[tuple[Source, Text]]
) -> KubernetesJob:
    """The object at `root`, with the script that its pods run; `maps`: the file's ConfigMaps."""
    roles = tuple(_roles(YamlDocument(source=source, root=root), row))
    job = KubernetesJob(source=source, root=root, script=None, row=row, roles=roles)
    main = job.starter
    command = _command(job, text, main) if main else []
    if not main or not command:
        return job
    mounted = [*_mounted_maps(job, main, maps)]
    files = (piece for each in mounted for piece in _written_files(each))
    folders = _config_folders(mounted)
    others = {
        path: name for path, name in _all_config_folders(job, main).items() if path not in folders
    }
    return replace(
        job,
        script=script_of(
            [*files, *_controllers(job), *_variables(job, main.container), *command], text
        ),
        config_folders=folders,
        other_config_folders=others,
    )


def _command(job: KubernetesJob, text: Text, role: Role) -> list[Piece]:
    """Return the command that starts the training, as text.

    It is the script that the controller is given, else the text that a container's shell is given,
    else the words of the container's command, quoted.
    """
    entry = job.text(job.row.script) if job.row.script else None
    if entry:
        return [(entry, places(job.source, text, job.pointer(job.row.script), entry))]
    words = [
        (str(item), at)
        for name in ("command", "args")
        for at, item in job.items(f"{role.container}/{name}")
    ]
    index = _script_index([word for word, _ in words])
    if index is None:
        return list(_words(job, words))
    script, at = words[index]
    piece = _unescaped(script, places(job.source, text, job.pointer(at), script))
    if index + 1 == len(words):
        return [piece] if script.strip() else []
    # words after the script are its arguments, so the shell's call stays as it is
    before, after = words[:index], words[index + 1 :]
    return [*_words(job, before), _quoted(*piece), (" ", piece[1]), *_words(job, after)]


def _script_index(words: list[str]) -> int | None:
    """Which word is the text that a shell runs: the one after `-c`; None for another program."""
    if not words or PurePath(words[0]).name not in _SHELLS:
        return None
    index = next((index for index, word in enumerate(words) if _RUNS_TEXT.fullmatch(word)), None)
    return None if index is None or index + 1 == len(words) else index + 1


def _words(job: YamlDocument, words: Iterable[tuple[str, str]]) -> Iterator[Piece]:
    """Words with their places, as words of bash."""
    return ((f"{_word(word)} ", constant(job.locate(at))) for word, at in words)


def _unescaped(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as the shell gets it: Kubernetes makes `$` of `$$`."""
    kept = [match.start() for match in _CHARACTER.finditer(script)]
    return "".join(script[index] for index in kept), partial(_place_before, where, kept)


def _quoted(script: str, where: Callable[[int], Location]) -> Piece:
    """A script as one word in single quotes."""
    parts = ["'", *(_QUOTE if char == "'" else char for char in script), "'"]
    origins = [max(number - 1, 0) for number, part in enumerate(parts) for _ in part]
    return "".join(parts), partial(_place_before, where, origins)


def _place_before(
    where: Callable[[int], Location], origins: Sequence[int], offset: int
) -> Location:
    """The place of a character of a text that was made of another one's, at these offsets."""
    return where(origins[min(offset, len(origins) - 1)])


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
            is_literal = isinstance(value, str) and "$" not in value
            word = shlex.quote(str(value)) if is_literal else UNKNOWN
            yield exported(name, word, job.locate(f"{at}/{'value' if is_literal else 'name'}"))


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
