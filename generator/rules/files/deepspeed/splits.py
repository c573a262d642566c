"""`Split`: the size of a kind of parallelism that a DeepSpeed config asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ....documents.deepspeed_config import Config
from ....documents.submission import Submission
from ....documents.world import World, world_of
from ....findings import Violation
from ...numbers import listed
from ...rule import Subject, subject
from .subjects import configs

AUTOTP: Final = "/tensor_parallel/autotp_size"
ULYSSES: Final = "/sequence_parallel_size"


class Split(NamedTuple):
    """A size above 1 at a pointer of a config, and the submission that the config belongs to."""

    config: Config
    submission: Submission
    pointer: str
    size: int

    @property
    def key(self) -> str:
        """The key with its size, in a message."""
        return f"{self.pointer.rpartition('/')[2]}: {self.size}"

    @property
    def world(self) -> World:
        """The GPUs and how they are divided."""
        return world_of(self.submission)

    def violation(self, problem: str, fits: Iterable[int]) -> Violation:
        """A violation at the size; `fits`: the sizes that pass."""
        hint = f"set {self.pointer.rpartition('/')[2]} to {listed(fits)}"
        return self.other(self.pointer, f"{self.key} {problem}", hint)

    def other(self, pointer: str, message: str, hint: str) -> Violation:
        """A violation at another key of the config."""
        return Violation(where=self.config.locate(pointer), message=message, hint=hint)


def splits(pointer: str, is_used: Callable[[Config], bool] = lambda _: True) -> Subject[Split]:
    """The subject of rules on one size: the configs that have it, above 1, and use it."""

    @subject("DeepSpeed config")
    def found(submission: Submission) -> Iterator[Split]:
        for config in configs(submission):
            size = config.whole(pointer)
            if size and size > 1 and is_used(config):
                yield Split(config, submission, pointer, size)

    return found
