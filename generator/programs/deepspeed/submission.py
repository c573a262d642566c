"""The DeepSpeed configs of a submission, each as the program that it is for reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ...submission.record import loaded
from ...submission.references import Reference
from ...submission.submission import Submission
from ...submission.world import OF_CONFIG, RULED_OUT, Degree
from ...text.lookup import is_written
from ..python_around import hands_to_trainer, release_in, tells
from ..releases import Release
from .config import Config, DsConfig, has_auto

#: Values that are "auto": 334 of 343 public configs that have any have as many.
_OF_FILLERS: Final = 3
_DEGREES: Final = (
    ("tensor", "/tensor_parallel/autotp_size"),
    ("tensor", "/tensor_parallel/tp/tp_size"),
    ("pipeline", "/pipeline/stages"),
    ("context", "/sequence_parallel_size"),
)


@lru_cache(maxsize=4)
def configs_of(submission: Submission) -> tuple[Config, ...]:
    """DeepSpeed configs, those within scripts included."""
    return tuple(_config(config, submission) for config in submission.of(DsConfig))


def _config(config: DsConfig, submission: Submission) -> Config:
    release = release_of_deepspeed(submission, config.path)
    if id(config) in submission.configs_read:  # by another release, on behalf of the same consumer
        config_read: Config = submission.configs_read[id(config)]
        return replace(config_read, release=release)

    consumer, guessed = _consumer(config, submission)
    submission.configs_read[id(config)] = made = Config(
        json=config.json,
        target=config.target,
        consumer=consumer,
        guessed=guessed,
        unclaimed=guessed and not is_written(config) and submission.is_alone(config),
        release=release,
    )
    return made


def release_of_deepspeed(submission: Submission, path: str) -> Release:
    """The release that the file at `path` is judged by.

    It is the context's, else the nearest one that a file names.
    """
    stated = submission.context.deepspeed_version
    if stated is not None:
        return Release(program="deepspeed", version=stated)
    return release_in(submission, "deepspeed", path)


def _consumer(config: DsConfig, submission: Submission) -> tuple[str, bool]:
    """The program that reads a config, and whether that is a guess.

    It is the context's, else that of the launch line or file that names the config, else that of
    the documents around it, else Transformers or accelerate where a value is "auto".
    """
    named = submission.readers_of(config)
    consumer = submission.context.consumer or next(filter(None, named), None)
    if consumer is None and not named:
        consumer = next(_signs_of_consumer(submission), None)

    guessed = (consumer is None and not named) or (
        consumer == "deepspeed" and submission.context.consumer is None
    )
    # The Trainer fills in what is "auto" for others.
    if guessed and hands_to_trainer(config.path):
        consumer = "huggingface"

    # One or two among numbers are no sign of the Trainer where the programs have the engine alone.
    automatic = consumer is None and has_auto(config)
    if automatic and not has_auto(config, _OF_FILLERS) and tells("the engine", config.path):
        automatic = tells("a filler", config.path)
    return consumer or ("huggingface" if automatic else "deepspeed"), consumer is None


def _signs_of_consumer(submission: Submission) -> Iterator[str]:
    """What each program's documents tell of the one that reads configs."""
    for record in submission.programs:
        says = record.consumer
        if says is not None and says.when(submission):
            reader = loaded(says.function)(submission)
            if reader is not None:
                yield reader


@lru_cache(maxsize=4)
def used_config(submission: Submission) -> Config | None:
    """The DeepSpeed config that the job uses.

    It is the one that a launch line names, else the only one there is; None of several.
    """
    named = named_by(link for link in submission.references if link.kind == "DeepSpeed config")
    used = read_by(submission, named) or configs_of(submission)
    return used[0] if len(used) == 1 else None


@lru_cache(maxsize=4)
def named_in(submission: Submission, path: str) -> frozenset[int] | None:
    """The DeepSpeed configs that the document at `path` names, each as the `id` of its text.

    None where the document names none, or one that its script makes of another.
    """
    links = [
        link
        for link in submission.references
        if link.where.path == path
        and link.kind == "DeepSpeed config"
        and not is_made(submission, link)
    ]
    return named_by(links) if links else None


def is_made(submission: Submission, link: Reference) -> bool:
    """Return whether a script makes the file that it names, so that what it makes it of is read."""
    scripts = (script for script in submission.scripts if script.path == link.where.path)
    return not link.documents and any(script.makes(link.path) for script in scripts)


def named_by(links: Iterable[Reference]) -> frozenset[int]:
    """The documents that are named, by identity, of DeepSpeed configs of their text."""
    return frozenset(
        id(getattr(document, "json", document)) for link in links for document in link.documents
    )


def read_by(submission: Submission, named: frozenset[int]) -> Sequence[Config]:
    """The named configs that the job reads.

    A config that is written in the job itself is read, and not its copy beside the job.
    """
    every = [config for config in configs_of(submission) if id(config.json) in named]
    return [config for config in every if config.embedded] or every


def degrees_of(submission: Submission) -> Iterator[Degree]:
    """The degrees of parallelism in the config that the job uses.

    The Trainer has no pipeline.
    """
    config = used_config(submission)
    if config is None:
        return

    for name, pointer in _DEGREES:
        yield Degree(OF_CONFIG, name, config.whole(pointer))
    if config.consumer == "huggingface":
        yield Degree(RULED_OUT, "pipeline", 1)
