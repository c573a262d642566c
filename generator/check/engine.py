"""The installed DeepSpeed: its own parser, asked about the configs of a submission."""

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
from ..submission.world import FLAGS, world_of
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

    With `strict`, it is read as by the programs that read it before DeepSpeed.
    """
    if strict:
        return import_module("json").loads(content)
    twice = _imported("deepspeed.runtime.config_utils").dict_raise_error_on_duplicate_keys
    return import_module("hjson").loads(content, object_pairs_hook=twice)


def parse(
    config: Mapping[str, Any], world: int, *, dp: int | None = None, sp: int | None = None
) -> Any:
    """Return the `DeepSpeedConfig` of `config` on `world` ranks.

    Raises what DeepSpeed raises, and `NoEngine`.

    `dp`: the script passes an mpu with so many replicas. `sp`: it passes Transformers' Ulysses mpu.
    Neither: no mpu.
    """
    size, name = (dp, "data") if dp is not None else (sp, "sequence")
    mpu = (
        None
        if size is None
        else SimpleNamespace(**{f"get_{name}_parallel_world_size": lambda: size})
    )
    with _fake_world(world):
        return _imported("deepspeed.runtime.config").DeepSpeedConfig(copy.deepcopy(config), mpu=mpu)


@contextmanager
def _fake_world(world: int) -> Iterator[None]:
    """Make a process group of `world` ranks, of which this process is rank 0.

    The other ranks don't exist.
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
    except (
        Exception
    ) as problem:  # DeepSpeed raises many kinds where an accelerator or a library is missing
        absent = find_spec("deepspeed") is None
        reason = "is not installed" if absent else f"can't be imported: {str(problem).rstrip('.')}"
        raise NoEngine(
            f"DeepSpeed {reason}; pip install 'dsgen-launch[deepspeed]'", name="deepspeed"
        ) from problem


@contextmanager
def quiet() -> Iterator[None]:
    """Keep DeepSpeed's output away from the standard streams.

    This is what it prints, logs and warns of, and what its child processes print.
    """
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
        for handler in _stream_handlers(logger):  # those made meanwhile write to the sink as well
            handler.setStream(streams.get(handler, sys.stdout))


def _stream_handlers(logger: logging.Logger) -> list[Any]:
    return [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]


@contextmanager
def _descriptors_to_null() -> Iterator[None]:
    """Standard output and error of the process, below Python, lead nowhere meanwhile."""
    kept: list[tuple[int, int]] = []
    with suppress(OSError):
        kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor, _ in kept:
            os.dup2(null, descriptor)
        os.close(null)
    try:
        yield
    finally:
        for descriptor, copied in kept:
            os.dup2(copied, descriptor)
            os.close(copied)


def ask_engine(submission: Submission, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what DeepSpeed refuses in files without errors so far.

    Raises `NoEngine` where there is none.
    """
    version = installed_version()
    wanted = ".".join(map(str, submission.context.deepspeed_version or NEWEST["deepspeed"]))
    if version.split("+")[0] != wanted:
        message = (
            f"the DeepSpeed installed here is {version}, and the files are checked for {wanted}"
        )
        hint = f"set --deepspeed-version {version.split('+')[0]}, or install DeepSpeed {wanted}"
        yield codes.ENGINE_VERSION.at(Location(path=FLAGS), message, hint)
    broken = {finding.where.path for finding in findings if finding.severity is Severity.ERROR}
    for config in configs_of(submission):
        if config.path not in broken:
            yield from _ask(submission, config, version)


def _ask(submission: Submission, config: Config, version: str) -> Iterator[Finding]:
    world, replicas = _world(submission, config)
    reader = (
        f"DeepSpeed {version}"
        if config.consumer == "deepspeed"
        else "Python's json, which reads it first,"
    )
    try:
        with quiet():
            data = _as_given_to_deepspeed(config)
            reader = f"DeepSpeed {version}"
            parse(data, world, dp=replicas)
    except NoEngine:
        raise
    except Exception as problem:  # whatever DeepSpeed raises is its answer
        text = " ".join(_message(problem).split())
        text = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
        offset = problem.pos if isinstance(problem, JSONDecodeError) else None
        where = _place(config, text) if offset is None else config.json.lines.locate(offset)
        gpus = world_of(submission).gpus
        on_gpus = "" if gpus is None else f" on {gpus:,} GPUs"
        yield codes.ENGINE_REFUSES.at(where, f"{reader} refuses this config{on_gpus}: {text}")


def _as_given_to_deepspeed(config: Config) -> Any:
    """Return the config as it arrives at DeepSpeed's parser.

    Programs that read it before have filled in what is `auto`.
    """
    data = read(config.json.text.content, strict=config.consumer != "deepspeed")
    if config.filled and isinstance(data, dict):
        data = _filled(data)
        if "train_batch_size" not in data:
            data.setdefault("train_micro_batch_size_per_gpu", 1)
    return data


def _filled(block: dict[str, Any]) -> dict[str, Any]:
    """The block without its `auto` values: DeepSpeed's defaults replace what would be filled in."""
    kept = {key: value for key, value in block.items() if value != "auto"}
    return {
        key: _filled(value) if isinstance(value, dict) else value for key, value in kept.items()
    }


def _world(submission: Submission, config: Config) -> tuple[int, int | None]:
    """Return the number of ranks, and of the replicas of the mpu that the script passes.

    Megatron passes one, and so does a pipeline; without one there are no replicas.
    """
    world = world_of(submission)
    if config.consumer != "megatron-deepspeed" and world.pipeline <= 1:
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
    share, rest = divmod(total, micro * steps)
    return share if share and not rest and share <= 1 << 20 else 1


def _message(problem: Exception) -> str:
    """DeepSpeed's own message; of pydantic's, the first with its key."""
    errors = getattr(problem, "errors", None)
    if callable(errors):
        first = errors()[0]
        return f"{'.'.join(map(str, first.get('loc', ())))}: {first.get('msg', '')}"
    return str(problem) or type(problem).__name__


def _place(config: Config, text: str) -> Location:
    """The first key that the message names and the config has, else the file."""
    # the first of a name
    by_name = {pointer.rpartition("/")[2]: pointer for pointer in reversed([*config.json.spans])}
    named = next(
        (by_name[name] for name in re.findall(r"[A-Za-z_]\w*", text) if name in by_name), None
    )
    return Location(path=config.path) if named is None else config.locate_key(named)
