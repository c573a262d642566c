"""Tell what kind of document a file is, and which files of a folder are worth reading.

Where the name shows the kind, it decides; else the keys or the lines of the file do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Final

from ..findings import Finding
from ..numerals import is_whole
from ..patterns import lazy_pattern
from ..programs.records import PROGRAMS
from ..submission.record import Signs, loaded
from ..text.around import files_below
from ..text.document import Document, FileText, Kind

_SCRIPTS: Final = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job", ".pbs", ".lsf"})
MAPPINGS: Final = frozenset({".json", ".hjson", ".yaml", ".yml"})
YAML: Final = frozenset({".yaml", ".yml"})
#: Names that DeepSpeed configs often have, and other files sometimes.
_DEEPSPEED_NAME: Final = lazy_pattern(
    r"(?:^|[^a-z0-9])(?:ds|deepspeed|zero[-_]?[0-9]?|z[0-3])(?:[^a-z]|$)"
)
#: Names that only configs have, unlike `deepspeed_results.json`: `ds_config`, `zero3`.
_CONFIG_NAME: Final = lazy_pattern(
    r"(?:^|[^a-z0-9])(?:ds|deepspeed)[-_]?(?:conf|cfg|z|[0-9]+(?![a-z0-9])|\.)"
    r"|(?:^|[^a-z])zero[-_]?(?:stage)?[-_]?[0-9]"
)
_OUR_SPECS: Final = ("dsgen.yaml", "dsgen.yml")
_OUR_TEXTS: Final = ("arguments.txt", "overrides.txt")
_SHEBANG: Final = lazy_pattern(r"#![^\n]*\b(?:ba|da|k|z)?sh\b")
#: A first line that names a program other than a shell with the grammar of sh: expect, csh, fish.
_OTHER_SHEBANG: Final = lazy_pattern(r"#![ \t]*/(?:(?![^\n]*sh\b)|[^\n]*\b(?:t?csh|fish)\b)")
#: Of Slurm, PBS, LSF, Moab, Cobalt and the Fujitsu scheduler.
_DIRECTIVE: Final = lazy_pattern(rb"^#(?:SBATCH|PBS|BSUB|MSUB|COBALT|PJM)[ \t]+-", re.MULTILINE)
_STEP: Final = lazy_pattern(rb"^[ \t]*srun[ \t\\]", re.MULTILINE)
_API_VERSION: Final = lazy_pattern(rb"^apiVersion:[ \t]", re.MULTILINE)
_OBJECT: Final = lazy_pattern(rb"^kind:[ \t]", re.MULTILINE)
_HOST_LINE: Final = lazy_pattern(r"\s*\S+\s+slots\s*=", re.IGNORECASE)
#: Commands by which a text whose name tells no kind is taken for a launch script.
_SHOWS_SCRIPT: Final = lazy_pattern(r"\b(?:srun|torchrun|deepspeed|accelerate launch|mpirun)\b")
_MEGATRON_OPTIONS: Final = (
    "--num-layers",
    "--hidden-size",
    "--tensor-model-parallel-size",
    "--micro-batch-size",
)
#: An override of a config: `train.train_iters=500`.
_OVERRIDE_LINE: Final = lazy_pattern(r"[+~]{0,2}[a-z_]+(?:\.[a-z_0-9]+)+=")
_OPTION_LINE: Final = lazy_pattern(r"\s*--[a-z][\w-]*")
#: Suffixes of texts, workflows and templates, which may have launch lines.
_HOLDERS: Final = frozenset(
    {
        *(".ipynb", ".j2", ".md", ".mk", ".nf", ".py", ".rst", ".smk", ".tape", ".tmpl", ".toml"),
        ".tpl",
    }
)
#: Suffixes of texts and templates that may be batch scripts, too.
_TEXTS: Final = frozenset(
    {".def", ".dockerfile", ".jinja", ".jinja2", ".jsonnet", ".libsonnet", ".tftpl", ".txt"}
)
#: Suffixes of HTCondor's descriptions of jobs, and two lines that each has. Source:
#: condor_submit(1), SUBMIT DESCRIPTION FILE COMMANDS.
_SUBMITTED: Final = frozenset({".condor", ".jdl", ".sub", ".submit"})
_EXECUTABLE: Final = lazy_pattern(rb"^[ \t]*executable[ \t]*=", re.MULTILINE | re.IGNORECASE)
_QUEUE: Final = lazy_pattern(rb"^[ \t]*queue\b", re.MULTILINE | re.IGNORECASE)
#: An object of Kubernetes that runs a job, as YAML, JSON or a client's dump has it.
_JOB_OBJECT: Final = lazy_pattern(
    rb"^[ \t]{0,40}\"?kind\"?:[ \t]{0,9}[\"']?\w{0,40}Job\b", re.MULTILINE
)
_ANY_VERSION: Final = lazy_pattern(rb"^[ \t]{0,40}\"?apiVersion\"?:[ \t]", re.MULTILINE)
#: Bytes of a plain text, beyond which it is data: 99 % of 10,428 public scripts have under 13,500.
_MOST_OF_PLAIN_TEXT: Final = 64 * 1024
#: What a launch line begins with, but for torchrun's folder. The text between deepspeed and its
#: script is bounded: else a long line that names deepspeed often would be read to its end for each
#: of them.
_STARTS: Final = (
    rb"torchrun[\"',\s\\]+(?:[$-]|[\w./-]{1,120}\.py\b)",
    rb"accelerate[\"',\s]+launch\b",
    rb"-m[ \t]+torch\.distributed\.(?:run|launch)\b",
    rb"ray job submit\b",
    rb"#SBATCH[ \t]+-",
    rb"#PBS[ \t]+-",
    rb"#BSUB[ \t]+-",
    rb"deepspeed[ \t](?:\\\n|[^\n`]){0,400}\.py\b",
    rb"deepspeed[\"'],\s*[\"']-",
)
#: A text without any of these has no launch line. They are looked for first: each begins with
#: letters of its own, which is fast.
_MAY_START: Final = tuple(map(lazy_pattern, _STARTS))
_LAUNCH_LINE: Final = lazy_pattern(
    rb"(?:^|[\"'`\s(!])(?:(?:[\w./${}-]{1,120}/)?" + rb"|".join(_STARTS) + rb")"
)
#: Programs whose jobs are started from Python: the module that is imported for it, and the call or
#: the argument by which a job gets GPUs.
_JOBS_IN_PYTHON: Final = (
    ("AzureML", b"azureml.core", b"ScriptRunConfig("),
    ("AzureML", b"azure.ai.ml", b"command("),
    ("Kubeflow", b"kubeflow", b"Client("),
    ("Modal", b"modal", b"gpu="),
    ("Ray", b"ray", b"TorchTrainer("),
    ("SageMaker", b"sagemaker", b"distribution"),
    ("SageMaker", b"sagemaker", b"Estimator("),
    ("SageMaker", b"sagemaker", b"HuggingFace("),
    ("SageMaker", b"sagemaker", b"ModelTrainer("),
    ("SageMaker", b"sagemaker", b"PyTorch("),
    ("submitit", b"submitit", b"Executor("),
    ("Vertex AI", b"google.cloud", b"CustomJob("),
    ("Vertex AI", b"google.cloud", b"TrainingJob("),
)
_IMPORTED: Final = lazy_pattern(
    rb"^[ \t]{0,40}\"?(?:from|import)[ \t]+([\w.]{1,100})", re.MULTILINE
)
_ALIKE: Final = 0.8  # difflib's ratio from which a key counts as another one misspelt
_MOST_LINES: Final = 200  # that are looked at for a file's kind
_MOST_CHARACTERS: Final = 100_000  # of these lines: a bound on time
#: How the file begins that git keeps in place of one that Git LFS stores.
_LFS_POINTER: Final = "version https://git-lfs.github.com/"
#: Keys that show a file of something else: a model's config, a tokenizer, a package, a run's log,
#: DeepSpeed's inference.
_KEYS_OF_OTHERS: Final = frozenset(
    {
        "added_tokens_decoder",
        "architectures",
        "dependencies",
        "enable_cuda_graph",
        "global_step",
        "injection_policy",
        "kernel_inject",
        "log_history",
        "model_type",
        "replace_method",
        "replace_with_kernel_inject",
        "step_time",
        "tokenizer_class",
        "weight_map",
    }
)


@cache
def _all_signs() -> Mapping[Kind, Signs]:
    """Return the keys that are signs of a kind, by the kind; some kinds have none."""
    return {name: kind.signs for name, kind in PROGRAMS.kinds.items() if kind.signs is not None}


def read_as(kind: Kind, file: FileText) -> Iterator[Document | Finding]:
    """Read the documents of a file of a kind, and findings on its text."""
    documents: Iterator[Document | Finding] = loaded(PROGRAMS.kinds[kind].reader)(file)
    return documents


def is_candidate(path: PurePath) -> bool:
    """Return whether a file of a folder may be a document, by its name alone."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if name.startswith("."):
        return name == ".deepspeed_env"
    return suffix in _SCRIPTS | MAPPINGS or name in _OUR_TEXTS or name.startswith("hostfile")


def may_hold_launch_line(path: PurePath) -> bool:
    """Return whether a file that is no document may have launch lines, by its name alone.

    A hidden file may be the configuration of a service that starts jobs, such as `.gitlab-ci.yml`.
    """
    suffix = path.suffix.lower()
    if path.name.startswith("."):
        return suffix in _SCRIPTS | MAPPINGS
    # `job.yaml.template`, `job.yaml-template`
    return may_be_script(path) or suffix in _HOLDERS or suffix.endswith("template")


def may_be_script(path: PurePath) -> bool:
    """Return whether a file may be a batch script, though its suffix isn't one of scripts."""
    return not path.suffix or path.suffix.lower() in _TEXTS


def launches_in(path: Path, most_bytes: int) -> str | None:
    """How a file starts a job: by "launch lines", or as "started from Python by Ray".

    None where it starts none. A file of more than `most_bytes` isn't read.
    """
    suffix = path.suffix.lower()
    if suffix == ".txt":
        most_bytes = min(most_bytes, _MOST_OF_PLAIN_TEXT)
    try:
        content = path.read_bytes() if path.stat().st_size <= most_bytes else b""
    except OSError:
        return None
    if starts_launcher(content):
        return "launch lines"
    is_python = suffix in (".py", ".ipynb")
    program = _program_in_python(content) if is_python else None
    return f"started from Python by {program}" if program else None


def _program_in_python(content: bytes) -> str | None:
    """The program whose jobs a Python file starts; None where it starts none that is known."""
    near = [row for row in _JOBS_IN_PYTHON if row[1] in content and row[2] in content]
    if not near:
        return None
    imported = set(_IMPORTED.findall(content))
    for program, module, _ in near:
        if any(name == module or name.startswith(module + b".") for name in imported):
            return program
    return None


#: A key by which a program of a project's own is told its DeepSpeed config.
_NAMES_CONFIG: Final = lazy_pattern(
    rb"^[ \t]{0,40}(?:deepspeed|ds)(?:_config)?(?:_(?:file|path))?:[ \t]{1,9}"
    rb"[\"']?[^\s\"'#]{1,200}\.(?:json|ya?ml)\b",
    re.MULTILINE,
)
#: A command of a scheduler with options, as a line of a text or the value of a key.
_SCHEDULES: Final = lazy_pattern(
    rb"^[ \t-]{0,40}(?:[\w-]{1,60}:[ \t]{1,9}[\"']?)?(?:srun|sbatch|qsub|bsub)[ \t]{1,9}-",
    re.MULTILINE,
)


def names_config(content: bytes) -> bool:
    """Return whether a key of a YAML file names a DeepSpeed config."""
    return _NAMES_CONFIG.search(content) is not None


def schedules(content: bytes) -> bool:
    """Return whether a text has a command that starts a job or a step of one."""
    return _SCHEDULES.search(content) is not None


def starts_launcher(content: bytes) -> bool:
    """Return whether a text has a line, or a list, that starts a launcher."""
    may_start = any(pattern.search(content) for pattern in _MAY_START)
    return may_start and _LAUNCH_LINE.search(content) is not None


def begins_with_shell(path: Path) -> bool:
    """Return whether the first line of a file names a shell."""
    try:
        with path.open("rb") as file:
            first = file.readline(200).decode("utf-8", "replace")
    except OSError:
        return False
    return _SHEBANG.match(first) is not None


def is_batch_script(path: Path) -> bool:
    """Return whether a file is the script of a job: a scheduler reads files of any name.

    Its first line names a shell, and a line has a directive, or starts a step or a launcher.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) != b"#!":
                return False
            content = b"#!" + file.read(_MOST_CHARACTERS)
    except OSError:
        return False
    first_line = content.partition(b"\n")[0].decode("utf-8", "replace")
    if _SHEBANG.match(first_line) is None:
        return False
    signs = (_DIRECTIVE, _STEP)
    return any(sign.search(content) for sign in signs) or starts_launcher(content)


def resembles(keys: frozenset[str], kind: Kind) -> bool:
    """Tell whether keys look like those of a kind, misspelt ones included.

    It takes half of the keys, or one that hardly any other kind has. A file without keys may be of
    any kind.
    """
    signs = _all_signs()[kind]
    matches = (get_close_matches(key, signs.every, n=1, cutoff=_ALIKE) for key in keys)
    meant = [match[0] for match in matches if match]
    return 2 * len(meant) >= len(keys) or not (signs.plain | signs.rare).isdisjoint(meant)


def tells_by_name(path: PurePath) -> bool:
    """Return whether a file's name alone shows that it is a document."""
    if is_script(path):
        return True
    is_yaml = path.suffix.lower() in YAML
    return not is_yaml and _DEEPSPEED_NAME.search(path.name.lower()) is not None


def is_script(path: PurePath) -> bool:
    """Return whether a file is a shell script by its name."""
    return path.suffix.lower() in _SCRIPTS


def shows_shell(path: PurePath, content: str) -> bool:
    """Return whether a file is a shell script by its name, its first line or a directive."""
    is_shown = is_script(path) or _SHEBANG.match(content) is not None
    return is_shown or _DIRECTIVE.search(content.encode("utf-8", "replace")) is not None


def is_for_another(path: PurePath, content: str) -> bool:
    """Return whether a file is a script by its name, but its first line names no such shell."""
    return is_script(path) and _OTHER_SHEBANG.match(content) is not None


def may_be_hjson(path: PurePath, keys: frozenset[str]) -> bool:
    """Tell whether JSON that isn't strict is worth reading as HJSON, by its name or its keys.

    `keys` are the words of the text that look like keys.
    """
    if path.suffix.lower() == ".hjson" or _DEEPSPEED_NAME.search(path.name.lower()):
        return True
    signs = _all_signs()["DeepSpeed config"]
    return not keys.isdisjoint(signs.plain) or len(keys & signs.rare) > 1


def deepspeed_keys(keys: frozenset[str]) -> frozenset[str]:
    """Return those of the keys that a DeepSpeed config has at its top."""
    return keys & _all_signs()["DeepSpeed config"].every


def kind_of(
    path: PurePath, content: str, keys: frozenset[str], *, named: bool = False
) -> Kind | None:
    """The kind of the document at `path`; None where it is none.

    `keys` are its top-level keys, as far as they could be read. Where the user has `named` the
    file, any evidence is enough.
    """
    name, suffix = path.name.lower(), path.suffix.lower()
    if content.startswith(_LFS_POINTER):
        return None
    if name == ".deepspeed_env":
        return "environment file"
    if name in _OUR_SPECS:
        return "job spec"
    if is_for_another(path, content):
        return None

    is_mapping = suffix in MAPPINGS
    if suffix in _SCRIPTS or (not is_mapping and _SHEBANG.match(content)):
        return "launch script"
    if is_mapping:
        return _kind_of_mapping(name, keys, is_json=suffix not in YAML, named=named)
    if _is_hostfile(name, suffix, content):
        return "hostfile"
    return _kind_of_text(content, keys, named=named)


def _kind_of_mapping(name: str, keys: frozenset[str], *, is_json: bool, named: bool) -> Kind | None:
    """The kind of JSON or YAML, by its keys and, of JSON, its name."""
    has_deepspeed_name = is_json and _DEEPSPEED_NAME.search(name)
    if has_deepspeed_name and _all_signs()["DeepSpeed config"].enough(keys, plain_suffices=False):
        return "DeepSpeed config"  # even if keys of another kind are among its own

    kind = _kind_by_keys(keys, named=named)
    if kind is None and is_json and _is_named_deepspeed(name, keys):
        return "DeepSpeed config"
    return kind


def is_evidence(keys: frozenset[str]) -> bool:
    """Tell whether keys look like those of some kind, even if they aren't enough to be one."""
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return False
    return any(signs.is_near(keys) for signs in _all_signs().values())


def _is_named_deepspeed(name: str, keys: frozenset[str]) -> bool:
    """Tell whether a JSON file whose keys show no kind is a DeepSpeed config by its name."""
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return False
    if name.endswith(".hjson"):
        return True
    if not _DEEPSPEED_NAME.search(name):
        return False
    signs = _all_signs()["DeepSpeed config"]
    has_a_sign = not keys.isdisjoint(signs.plain) or signs.enough(keys, plain_suffices=False)
    return not keys or has_a_sign or _CONFIG_NAME.search(name) is not None


def _kind_by_keys(keys: frozenset[str], *, named: bool) -> Kind | None:
    """The kind that has the most of its signs among `keys`, if they are enough.

    None where a key shows a file of something else. Of a file that is `named` little is enough.
    """
    if not keys.isdisjoint(_KEYS_OF_OTHERS):
        return None

    signs = _all_signs()
    best = max(signs, key=lambda kind: signs[kind].weight(keys))
    # Every key of a job spec is a common word, so one alone shows nothing.
    too_little = 1 if best == "job spec" else 0
    if named and signs[best].weight(keys) > too_little and resembles(keys, best):
        return best
    enough = [
        kind
        for kind in signs
        if signs[kind].enough(keys, plain_suffices=kind != "DeepSpeed config")
    ]
    return max(enough, key=lambda kind: signs[kind].weight(keys), default=None)


def _kind_of_text(content: str, keys: frozenset[str], *, named: bool) -> Kind | None:
    """The kind of a file whose name tells none, by its lines or its keys."""
    lines = _lines(content)
    if lines and all(map(_OPTION_LINE.match, lines[:5])):
        has_megatrons = any(line.lstrip().startswith(_MEGATRON_OPTIONS) for line in lines)
        return "Megatron arguments" if has_megatrons else None

    are_overrides = [_OVERRIDE_LINE.match(line) is not None for line in lines[:5]]
    if lines and sum(are_overrides) >= min(len(are_overrides), 4):  # one may be mistyped
        return "Megatron-Bridge overrides" if _sets_bridge(lines) else None

    if lines and _HOST_LINE.match(lines[0]):
        return "hostfile"
    # Specs come before scripts: a spec names a launcher as its framework, as in
    # `framework: deepspeed`.
    if _kind_by_keys(keys, named=False) == "job spec":
        return "job spec"
    if "#SBATCH" in content or _SHOWS_SCRIPT.search(content):
        return "launch script"
    return _kind_by_keys(keys, named=named)


def _sets_bridge(lines: list[str]) -> bool:
    """Tell whether overrides are Megatron-Bridge's: no other config has these sections together."""
    sections = {line.lstrip("+~").partition(".")[0] for line in lines}
    of_training = {"train", "checkpoint", "dataset", "optimizer"}
    return "model" in sections and not sections.isdisjoint(of_training)


def _is_hostfile(name: str, suffix: str, content: str) -> bool:
    """Tell whether a file is a hostfile: by its name, else by most of its lines."""
    if not name.startswith("hostfile"):
        return False
    if not suffix or is_whole(suffix[1:]):  # `hostfile`, `hostfile.2`
        return True
    lines = _lines(content)
    return 2 * sum(bool(_HOST_LINE.match(line)) for line in lines) > len(lines)


def _lines(content: str) -> list[str]:
    """The lines at a file's beginning that are neither blank nor comments."""
    lines = content[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


#: Hidden folders that hold copies of files: of other commits, in environments and caches.
_FOLDERS_OF_COPIES: Final = frozenset(
    {".cache", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".nox", ".svn", ".tox"}
)
_MOST_BLANK: Final = 64  # bytes before the brace that JSON begins with
_MOST_HIDDEN: Final = 2_000  # files of hidden folders that are looked at


def with_launches(hidden: Iterable[Path], most_bytes: int) -> Iterator[Path]:
    """The files in and below hidden folders that start jobs.

    They have launch lines, are batch scripts, or are objects of Kubernetes. Folders of copies and
    virtual environments are passed over. Files of more than `most_bytes` aren't read.
    """
    folders = (
        folder
        for folder in hidden
        if folder.name not in _FOLDERS_OF_COPIES and not (folder / "pyvenv.cfg").is_file()
    )
    below = chain.from_iterable(map(files_below, folders))
    for path in islice(below, _MOST_HIDDEN):
        by_name = is_candidate(path) or may_hold_launch_line(path)
        if not by_name or os.path.islink(path):  # noqa: PTH114 - as in `candidates`
            continue
        starts_job = bool(launches_in(path, most_bytes)) or is_batch_script(path)
        if starts_job or is_manifest(path, most_bytes):
            yield path


def is_manifest(path: Path, most_bytes: int) -> bool:
    """Return whether a file has an object of Kubernetes, by the keys that each has."""
    try:
        is_read = path.suffix.lower() in YAML and path.stat().st_size <= most_bytes
        content = path.read_bytes() if is_read else b""
    except OSError:
        return False
    return _API_VERSION.search(content) is not None and _OBJECT.search(content) is not None


def shows_job_object(content: bytes) -> bool:
    """Return whether a text has an object of Kubernetes that runs a job, in whatever form."""
    return _JOB_OBJECT.search(content) is not None and _ANY_VERSION.search(content) is not None


def is_submit_file(path: Path) -> bool:
    """Return whether a file is HTCondor's description of a job: a program, and a queue."""
    if path.suffix.lower() not in _SUBMITTED:
        return False
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_CHARACTERS)
    except OSError:
        return False
    return _EXECUTABLE.search(content) is not None and _QUEUE.search(content) is not None


def _is_deepspeed_json(path: Path) -> bool:
    """Return whether a file has a name of DeepSpeed's configs alone and begins as JSON, whatever
    its suffix: `ds_zero2.config`.
    """
    if _CONFIG_NAME.search(path.name.lower()) is None:
        return False
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BLANK).lstrip().startswith(b"{")
    except OSError:
        return False


#: What shows that a file is worth a look, whatever its name.
_SHOW_BY_CONTENT: Final = (is_batch_script, _is_deepspeed_json, is_submit_file)


def candidates(folder: Path, hidden: list[Path] | None = None) -> Iterator[Path]:
    """The files in and below a folder that may be documents or have launch lines, in order.

    Links to files in the folder come last, so that a file is read by its own name first. Hidden
    folders, other links, pipes and devices are left out; the hidden folders are appended to
    `hidden`, where it is given.
    """
    links = list[Path]()
    for path in files_below(folder, hidden=hidden):
        by_name = is_candidate(path) or may_hold_launch_line(path)
        if os.path.islink(path):  # noqa: PTH114 - what may not be read is an error to pathlib
            if by_name:
                links.append(path)
        elif not os.path.isfile(path):  # noqa: PTH113
            continue
        elif by_name or any(shows(path) for shows in _SHOW_BY_CONTENT):
            yield path
    root = os.path.realpath(folder)
    yield from (
        link
        for link in links
        if Path(os.path.realpath(link)).is_relative_to(root) and link.is_file()
    )
