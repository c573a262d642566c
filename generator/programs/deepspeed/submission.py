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
from ..python_around import gives_to_engine, hands_to_trainer, release_in, tells
from ..releases import Release
from .config import Config, DsConfig, has_auto

#: So many values of "auto" show that a program fills them in: 334 of 343 public configs that have
#: any have as many.
_AUTOS_OF_FILLERS: Final = 3
#: The keys of a config that are degrees of parallelism.
_DEGREES: Final = (
    ("tensor", "/tensor_parallel/autotp_size"),
    ("tensor", "/tensor_parallel/tp/tp_size"),
    ("pipeline", "/pipeline/stages"),
    ("context", "/sequence_parallel_size"),
)


@lru_cache(maxsize=4)
def configs_of(submission: Submission) -> tuple[Config, ...]:
    """DeepSpeed configs, those within scripts included."""
    return tuple(_as_read(config, submission) for config in submission.of(DsConfig))


def _as_read(config: DsConfig, submission: Submission) -> Config:
    """A config as its consumer and its release of DeepSpeed read it."""
    release = release_of_deepspeed(submission, config.path)
    if id(config) in submission.configs_read:  # by another release, on behalf of the same consumer
        read_before: Config = submission.configs_read[id(config)]
        return replace(read_before, release=release)

    consumer, guessed = _consumer(config, submission)
    as_read = Config(
        json=config.json,
        target=config.target,
        consumer=consumer,
        guessed=guessed,
        unclaimed=guessed and not is_written(config) and submission.is_alone(config),
        release=release,
    )
    submission.configs_read[id(config)] = as_read
    return as_read


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

    It is the one that the command line states, else that of the launch line or file that names the
    config, else that of the documents around it, else that of the programs that name it, else
    Transformers or accelerate where a value is "auto", else DeepSpeed.
    """
    stated = submission.context.consumer
    readers = submission.readers_of(config)
    consumer = stated or next(filter(None, readers), None)
    if consumer is None and not readers:
        consumer = next(_signs_of_consumer(submission), None)

    is_unnamed = consumer is None and not readers
    is_by_default = consumer == "deepspeed" and stated is None
    # A program beside the config may hand it to the Trainer, which fills in "auto" for DeepSpeed.
    if (is_unnamed or is_by_default) and hands_to_trainer(config.path):
        consumer = "huggingface"
    if consumer is not None:
        return consumer, False

    is_filled = has_auto(config)
    if is_filled and gives_to_engine(config.path):
        return "deepspeed", False
    # One or two among numbers are no sign of the Trainer where the programs have the engine alone.
    has_few = is_filled and not has_auto(config, _AUTOS_OF_FILLERS)
    if has_few and tells("the engine", config.path):
        is_filled = tells("a filler", config.path)
    return "huggingface" if is_filled else "deepspeed", True


def _signs_of_consumer(submission: Submission) -> Iterator[str]:
    """The programs that documents of the submission say to read DeepSpeed configs."""
    for record in submission.programs:
        says = record.consumer
        if says is not None and says.when(submission):
            consumer = loaded(says.function)(submission)
            if consumer is not None:
                yield consumer


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

    None where the document names none, or only some that its script makes of others.
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
    """Return whether the script with this reference makes the file itself, of another one."""
    scripts = (script for script in submission.scripts if script.path == link.where.path)
    return not link.documents and any(script.makes(link.path) for script in scripts)


def named_by(links: Iterable[Reference]) -> frozenset[int]:
    """The `id` of each document that references lead to; of a DeepSpeed config, that of its text.

    A config is made anew for each release that reads it, and its text isn't.
    """
    return frozenset(
        id(getattr(document, "json", document)) for link in links for document in link.documents
    )


def read_by(submission: Submission, named: frozenset[int]) -> Sequence[Config]:
    """The named configs that the job reads.

    A config that is written in the job itself is read, and not its copy beside the job.
    """
    configs = [config for config in configs_of(submission) if id(config.json) in named]
    return [config for config in configs if config.embedded] or configs


def degrees_of(submission: Submission) -> Iterator[Degree]:
    """The degrees of parallelism in the config that the job uses."""
    config = used_config(submission)
    if config is None:
        return

    for name, pointer in _DEGREES:
        yield Degree(OF_CONFIG, name, config.whole(pointer))
    if config.consumer == "huggingface":  # the Trainer has no pipeline
        yield Degree(RULED_OUT, "pipeline", 1)
