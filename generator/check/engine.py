"""The installed DeepSpeed's own parser, asked about every DeepSpeed config: `--engine`. No GPU, no launch.

torch's `fake` process group has as many ranks as the submission; DeepSpeed then checks the config
as it would there. DeepSpeed is imported into this process; without `DS_ACCELERATOR` in the environment that is set to
`cpu`, so that no device is touched.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Final

ACCELERATOR: Final = "DS_ACCELERATOR"
_LOGGER: Final = "DeepSpeed"


class NoEngine(ModuleNotFoundError):
    """DeepSpeed can't be imported here; the message names what to install."""


def installed_version() -> str:
    """The version of the DeepSpeed that is installed. Raises `NoEngine` where it can't be imported."""
    with quiet():
        return str(_imported("deepspeed").__version__)


def read(content: str, *, strict: bool) -> Any:
    """A config's text as DeepSpeed reads it, or with `strict` as the programs do that read it before DeepSpeed."""
    if strict:
        return import_module("json").loads(content)
    twice = _imported("deepspeed.runtime.config_utils").dict_raise_error_on_duplicate_keys
    return import_module("hjson").loads(content, object_pairs_hook=twice)


def parse(config: Mapping[str, Any], world: int, *, dp: int | None = None, sp: int | None = None) -> Any:
    """The `DeepSpeedConfig` of `config` on `world` ranks; raises what DeepSpeed raises, and `NoEngine`.

    `dp`: the script passes an mpu with so many replicas. `sp`: it passes Transformers' Ulysses mpu. Neither: no mpu.
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
    """A process group of `world` ranks of which this process is rank 0, and all others imaginary."""
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
    except Exception as problem:  # DeepSpeed raises many kinds where an accelerator or a library is missing
        absent = find_spec("deepspeed") is None
        reason = "is not installed" if absent else f"can't be imported: {str(problem).rstrip('.')}"
        raise NoEngine(f"DeepSpeed {reason}; pip install 'dsgen-launch[deepspeed]'", name="deepspeed") from problem


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what DeepSpeed prints, logs, warns of, or has its child processes print away from the standard streams."""
    sink = io.StringIO()
    logger = logging.getLogger(_LOGGER)
    streams = [(handler, handler.stream) for handler in _stream_handlers(logger)]
    for handler, _ in streams:
        handler.setStream(sink)
    try:
        with redirect_stdout(sink), redirect_stderr(sink), _descriptors_to_null(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in _stream_handlers(logger):  # those made meanwhile write to the sink as well
            handler.setStream(dict(streams).get(handler, sys.stdout))


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
