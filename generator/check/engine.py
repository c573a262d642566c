"""Ask the parser of the installed DeepSpeed about the configs of a submission (`--engine`)."""

from __future__ import annotations

import copy
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from json import JSONDecodeError
from types import SimpleNamespace
from typing import Any, Final

from ..findings import Finding, Location, Severity
from ..job.releases import NEWEST
from ..programs.deepspeed.config import BATCH_KEYS, Config
from ..programs.deepspeed.submission import configs_of
from ..submission.submission import Submission
from ..submission.world import FLAGS, MOST_GPUS, world_of
from . import codes

ACCELERATOR: Final = "DS_ACCELERATOR"
_MAX_MESSAGE: Final = 500  # characters of DeepSpeed's own message


class NoEngine(ModuleNotFoundError):
    """DeepSpeed can't be imported here; the message names what to install."""


def installed_version() -> str:
    """Return the version of the installed DeepSpeed.

    Raises `NoEngine` where it can't be imported.
    """
    with quiet():
        return str(_imported("deepspeed").__version__)


def read(content: str, *, strict: bool) -> Any:
    """Read a config's text as DeepSpeed does.

    With `strict`, it is read as by the programs that read it before DeepSpeed: as plain JSON.
    """
    if strict:
        return import_module("json").loads(content)
    refuse_twice = _imported("deepspeed.runtime.config_utils").dict_raise_error_on_duplicate_keys
    return import_module("hjson").loads(content, object_pairs_hook=refuse_twice)


def parse(
    config: Mapping[str, Any], world: int, *, dp: int | None = None, sp: int | None = None
) -> Any:
    """Return the `DeepSpeedConfig` of `config` on `world` ranks.

    Raises what DeepSpeed raises, and `NoEngine`.

    With `dp`, the script passes an mpu with so many replicas; with `sp`, it passes Transformers'
    mpu for Ulysses. With neither, it passes no mpu.
    """
    mpu = None
    if dp is not None:
        mpu = SimpleNamespace(get_data_parallel_world_size=lambda: dp)
    elif sp is not None:
        mpu = SimpleNamespace(get_sequence_parallel_world_size=lambda: sp)
    with _fake_world(world):
        return _imported("deepspeed.runtime.config").DeepSpeedConfig(copy.deepcopy(config), mpu=mpu)


@contextmanager
def _fake_world(world: int) -> Iterator[None]:
    """Make a process group of `world` ranks in which this process is rank 0, the only real one.

    DeepSpeed's parser asks torch for the number of ranks, by which it divides the batch.
    """
    comm = _imported("deepspeed.comm")
    distributed = _imported("torch.distributed")
    store = _imported("torch.testing._internal.distributed.fake_pg").FakeStore()
    # It would compile a shared-memory operator for CPU collectives, which nothing here runs.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    distributed.init_process_group("fake", store=store, rank=0, world_size=world)
    try:
        comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        yield
    finally:
        comm.comm.cdb = None
        distributed.destroy_process_group()


def _imported(module: str) -> Any:
    os.environ.setdefault(ACCELERATOR, "cpu")
    try:
        if find_spec("deepspeed") is None or find_spec("torch") is None:
            raise ModuleNotFoundError("not installed")
        return import_module(module)
    # DeepSpeed raises many kinds of exceptions where an accelerator or a library is missing.
    except Exception as problem:
        absent = find_spec("deepspeed") is None
        reason = "is not installed" if absent else f"can't be imported: {str(problem).rstrip('.')}"
        message = f"DeepSpeed {reason}; pip install 'dsgen-launch[deepspeed]'"
        raise NoEngine(message, name="deepspeed") from problem


@contextmanager
def quiet() -> Iterator[None]:
    """Keep DeepSpeed's prints, logs and warnings, and its children's, off the standard streams."""
    sink, logger = io.StringIO(), logging.getLogger("DeepSpeed")
    streams = {handler: handler.stream for handler in _stream_handlers(logger)}
    for handler in streams:
        handler.setStream(sink)
    try:
        with (
            redirect_stdout(sink),
            redirect_stderr(sink),
            _descriptors_to_null(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        # Handlers that were made meanwhile write to the sink as well.
        for handler in _stream_handlers(logger):
            handler.setStream(streams.get(handler, sys.stdout))


def _stream_handlers(logger: logging.Logger) -> list[Any]:
    return [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]


@contextmanager
def _descriptors_to_null() -> Iterator[None]:
    """Discard what is written to the process's standard output and error.

    Child processes, and libraries in C, write there without asking Python's `sys.stdout`.
    """
    copies: list[tuple[int, int]] = []
    with suppress(OSError):
        copies = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor, _ in copies:
            os.dup2(null, descriptor)
        os.close(null)
    try:
        yield
    finally:
        for descriptor, copy_of_it in copies:
            os.dup2(copy_of_it, descriptor)
            os.close(copy_of_it)


def ask_engine(submission: Submission, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what DeepSpeed refuses in the configs that have no error among `findings`.

    Raises `NoEngine` where DeepSpeed isn't installed.
    """
    version = installed_version()
    release = version.partition("+")[0]  # without the commit of a build from source
    wanted = ".".join(map(str, submission.context.deepspeed_version or NEWEST["deepspeed"]))
    if release != wanted:
        message = (
            f"the DeepSpeed installed here is {version}, and the files are checked for {wanted}"
        )
        hint = f"set --deepspeed-version {release}, or install DeepSpeed {wanted}"
        yield codes.ENGINE_VERSION.at(Location(path=FLAGS), message, hint)

    broken = {finding.where.path for finding in findings if finding.severity is Severity.ERROR}
    for config in configs_of(submission):
        if config.path not in broken:
            yield from _ask(submission, config, version)


def _ask(submission: Submission, config: Config, version: str) -> Iterator[Finding]:
    world, replicas = _world(submission, config)
    deepspeed = f"DeepSpeed {version}"
    is_read_first = config.consumer != "deepspeed"
    reader = "Python's json, which reads it first," if is_read_first else deepspeed
    try:
        with quiet():
            data = _as_given_to_deepspeed(config)
            reader = deepspeed
            parse(data, world, dp=replicas)
    except NoEngine:
        raise
    except Exception as problem:  # whatever DeepSpeed raises is its answer
        text = " ".join(_message(problem).split())
        text = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
        if isinstance(problem, JSONDecodeError):
            where = config.json.lines.locate(problem.pos)
        else:
            where = _place(config, text)
        gpus = world_of(submission).gpus
        on_gpus = "" if gpus is None else f" on {gpus:,} GPUs"
        yield codes.ENGINE_REFUSES.at(where, f"{reader} refuses this config{on_gpus}: {text}")


def _as_given_to_deepspeed(config: Config) -> Any:
    """Return the config as DeepSpeed's parser gets it.

    A program that reads it first, such as the Trainer, has replaced each `auto`.
    """
    data = read(config.json.text.content, strict=config.consumer != "deepspeed")
    if config.filled and isinstance(data, dict):
        data = _filled(data)
        if "train_batch_size" not in data:
            data.setdefault("train_micro_batch_size_per_gpu", 1)
    return data


def _filled(block: dict[str, Any]) -> dict[str, Any]:
    """The block without its `auto` values.

    What the program would fill in isn't known, so DeepSpeed's defaults stand in for it.
    """
    return {
        key: _filled(value) if isinstance(value, dict) else value
        for key, value in block.items()
        if value != "auto"
    }


def _world(submission: Submission, config: Config) -> tuple[int, int | None]:
    """Return the number of ranks, and the replicas of the mpu that the script passes.

    Megatron passes an mpu, and so does a pipeline; else the replicas are None.
    """
    world = world_of(submission)
    has_mpu = config.consumer == "megatron-deepspeed" or world.pipeline > 1
    if not has_mpu:
        return world.gpus or _replicas(config), None
    if world.gpus is not None:
        return world.gpus, world.replicas or 1
    replicas = _replicas(config)
    return replicas * world.model_parallel, replicas


def _replicas(config: Config) -> int:
    """Return as many replicas as the batch sizes give, where that is an integer.

    Else it is 1, which the parser refuses least.
    """
    total, micro, steps = (config.whole(f"/{key}") or 0 for key in BATCH_KEYS)
    if min(total, micro, steps) < 1:
        return 1
    replicas, rest = divmod(total, micro * steps)
    is_possible = rest == 0 and 1 <= replicas <= MOST_GPUS
    return replicas if is_possible else 1


def _message(problem: Exception) -> str:
    """DeepSpeed's own message; of an exception of pydantic's, its first error with the key."""
    errors = getattr(problem, "errors", None)
    if callable(errors):
        first = errors()[0]
        key = ".".join(map(str, first.get("loc", ())))
        return f"{key}: {first.get('msg', '')}"
    return str(problem) or type(problem).__name__


def _place(config: Config, text: str) -> Location:
    """The first key that the message names and the config has, else the file."""
    pointers = dict[str, str]()
    for pointer in config.json.spans:
        pointers.setdefault(pointer.rpartition("/")[2], pointer)
    for name in re.findall(r"[A-Za-z_]\w*", text):
        if name in pointers:
            return config.locate_key(pointers[name])
    return Location(path=config.path)
