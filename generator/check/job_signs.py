"""What in a file shows that it starts a job, whatever kind of file it is.

Most of these files aren't read as documents; they are named, so that nobody takes them for checked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..patterns import lazy_pattern
from .kinds import DIRECTIVE, MOST_CHARACTERS, SHEBANG, YAML

#: Why a file isn't judged that has launch lines.
LAUNCH_LINES: Final = "launch lines, but no script"
#: Bytes of a line that names a shell. Source: BINPRM_BUF_SIZE of Linux is 256, 128 before 5.1.
_LONGEST_SHEBANG: Final = 256
_STEP: Final = lazy_pattern(rb"^[ \t]*srun[ \t\\]", re.MULTILINE)
#: The keys that each object of Kubernetes has.
_API_VERSION: Final = lazy_pattern(rb"^apiVersion:[ \t]", re.MULTILINE)
_OBJECT: Final = lazy_pattern(rb"^kind:[ \t]", re.MULTILINE)
#: An object of Kubernetes that runs a job, as YAML, JSON or a client's dump has it.
_JOB_OBJECT: Final = lazy_pattern(
    rb"^[ \t]{0,40}\"?kind\"?:[ \t]{0,9}[\"']?\w{0,40}Job\b", re.MULTILINE
)
_ANY_VERSION: Final = lazy_pattern(rb"^[ \t]{0,40}\"?apiVersion\"?:[ \t]", re.MULTILINE)
#: Suffixes of HTCondor's descriptions of jobs, and two lines that each has. Source:
#: condor_submit(1), SUBMIT DESCRIPTION FILE COMMANDS.
_SUBMITTED: Final = frozenset({".condor", ".jdl", ".sub", ".submit"})
_EXECUTABLE: Final = lazy_pattern(rb"^[ \t]*executable[ \t]*=", re.MULTILINE | re.IGNORECASE)
_QUEUE: Final = lazy_pattern(rb"^[ \t]*queue\b", re.MULTILINE | re.IGNORECASE)
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
    rb"(?:mpirun|mpiexec|horovodrun)[ \t]+-",
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


def launches_in(path: Path, most_bytes: int) -> str | None:
    """How a file starts a job: `LAUNCH_LINES`, or "started from Python by Ray".

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
        return LAUNCH_LINES
    is_python = suffix in (".py", ".ipynb")
    program = _program_in_python(content) if is_python else None
    return f"started from Python by {program}" if program else None


def _program_in_python(content: bytes) -> str | None:
    """The program whose jobs a Python file starts; None where it starts none that is known."""
    near = [
        (program, module)
        for program, module, sign in _JOBS_IN_PYTHON
        if module in content and sign in content
    ]
    if not near:
        return None
    imported = set(_IMPORTED.findall(content))
    for program, module in near:
        if any(name == module or name.startswith(module + b".") for name in imported):
            return program
    return None


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


def beginning_of(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file; none of one that can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes)
    except OSError:
        return b""


def begins_with_shell(path: Path) -> bool:
    """Return whether the first line of a file names a shell."""
    first_line = beginning_of(path, _LONGEST_SHEBANG).partition(b"\n")[0]
    return SHEBANG.match(first_line.decode("utf-8", "replace")) is not None


def is_batch_script(path: Path) -> bool:
    """Return whether a file is the script of a job: a scheduler reads files of any name.

    Its first line names a shell, and a line has a directive, or starts a step or a launcher.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) != b"#!":  # most files of a folder are asked: read no more of them
                return False
            content = b"#!" + file.read(MOST_CHARACTERS)
    except OSError:
        return False
    first_line = content.partition(b"\n")[0].decode("utf-8", "replace")
    if SHEBANG.match(first_line) is None:
        return False
    signs = (DIRECTIVE, _STEP)
    return any(sign.search(content) for sign in signs) or starts_launcher(content)


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
    content = beginning_of(path, MOST_CHARACTERS)
    return _EXECUTABLE.search(content) is not None and _QUEUE.search(content) is not None
