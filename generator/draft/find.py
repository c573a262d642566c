"""The runs that the files at some paths describe, each with the documents that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..check.follow import follow
from ..check.read import Reading, read_documents
from ..findings import Location
from ..programs.deepspeed.config import Config
from ..programs.deepspeed.submission import configs_of, named_in, used_config
from ..programs.launching.front_ends import trains
from ..programs.launching.launch_line import LAUNCHERS
from ..programs.megatron.arguments import MegatronArguments
from ..programs.megatron.facts import MegatronFacts, megatron_facts
from ..programs.records import PROGRAMS
from ..programs.trainer.submission import ds_config_of, is_data_parallel, used_accelerate_config
from ..programs.trainer.training_arguments import TrainingArguments, from_launch
from ..submission.grouping import submissions_of
from ..submission.launches import Launch
from ..submission.submission import Submission
from ..text.document import Document, JobSpec
from ..text.lookup import end_alike
from .sharding import is_sharded


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingRun:
    """One run: a launch line or arguments, its DeepSpeed config, and the files around them."""

    submission: Submission
    megatron: MegatronFacts | None = None
    launch: Launch | None = None
    trainer: TrainingArguments | None = None
    config: Config | None = None

    @property
    def where(self) -> Location:
        """The place that names it."""
        if self.launch is not None and self.launch.program is not None:
            return self.launch.script.locate(self.launch.program)
        if self.megatron is not None:
            return self.megatron.run.locate("")
        document = self.config or self.trainer
        return document.locate("") if document else Location(path=self.submission.documents[0].path)

    @property
    def is_called(self) -> bool:
        """Whether another script calls the one that has its launch line."""
        return self.launch is not None and self.launch.script.text.path != self.where.path

    @property
    def program(self) -> str:
        """The program that the run starts, or the file that it is known by."""
        word = self.launch.program if self.launch else None
        if word is None or word.value == "":
            return self.where.path
        if word.value is not None:
            return word.value
        return word.raw.strip("\"'").rpartition("/")[2]  # the folder is a variable's


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> tuple[Reading, tuple[ExistingRun, ...]]:
    """What was read, and the runs in it.

    Files that a launch names are read with it. Megatron's runs come first, then other launches,
    then configs that nothing starts.
    """
    paths = tuple(paths)
    reading = read_documents(paths)
    files = follow(reading, paths)

    runs: list[ExistingRun] = []
    for group in submissions_of(reading.documents, files, PROGRAMS):
        documents = tuple(
            _as_complete(document) for document in group if not isinstance(document, JobSpec)
        )
        if documents:
            submission = Submission(
                documents=documents, programs=PROGRAMS, texts=reading.texts, around=files
            )
            runs += _runs_of(submission)
    runs.sort(key=lambda run: (not run.megatron, not run.launch, not run.trainer))
    return reading, tuple(_through_callers(runs))


def _as_complete(document: Document) -> Document:
    """Arguments of which some are in variables, as if these held none: the rest has its default."""
    if isinstance(document, MegatronArguments):
        return replace(document, complete=True, extended=False)
    if isinstance(document, TrainingArguments):
        return replace(document, complete=True)
    return document


def _through_callers(runs: Iterable[ExistingRun]) -> Iterator[ExistingRun]:
    """The runs; where several have one launch line, those first that a calling script starts.

    The caller is what is submitted: it has the scheduler's options.
    """
    by_line: dict[tuple[Location, str], list[ExistingRun]] = {}
    for run in runs:
        by_line.setdefault((run.where, run.program), []).append(run)
    for same in by_line.values():
        yield from sorted(same, key=lambda run: not run.is_called)


def _runs_of(submission: Submission) -> Iterator[ExistingRun]:
    launches: set[int] = set()
    for facts in megatron_facts(submission):
        run = facts.run
        launches.add(id(run.launch))
        yield ExistingRun(
            submission=submission, megatron=facts, launch=run.launch, config=run.config
        )
    for launch in submission.launches:
        of_launch = _run_of(launch, submission) if id(launch) not in launches else None
        if of_launch is not None:
            yield of_launch
            launches.add(id(launch))
    if not launches:
        yield from _runs_without_launch(submission)


def _runs_without_launch(submission: Submission) -> Iterator[ExistingRun]:
    """The runs of files that nothing starts: arguments, else configs, else accelerate's config."""
    files = [each for each in submission.of(TrainingArguments) if each.launch is None]
    for arguments in files:
        config = ds_config_of(submission, arguments) or used_config(submission)
        yield ExistingRun(submission=submission, trainer=arguments, config=config)
    if files:
        return
    configs = configs_of(submission)
    for config in configs:
        # JSON that is named by itself may be anything: it needs a key of DeepSpeed's.
        top = config.schema.section("")
        keys = config.json.data if isinstance(config.json.data, dict) else {}
        if top is not None and any(key in top.keys for key in keys):
            yield ExistingRun(submission=submission, config=config)
    if not configs and used_accelerate_config(submission) is not None:
        yield ExistingRun(submission=submission)


def _run_of(launch: Launch, submission: Submission) -> ExistingRun | None:
    """The run of a launch line that may be of a training: it uses a launcher, or names a config."""
    launchers = {call.program for call in launch.calls} & {*LAUNCHERS, "srun", "mpirun"}
    starts_ranks = launchers or launch.front_end or configs_of(submission)
    if launch.program is None or not starts_ranks or not trains(launch.front_end):
        return None
    trainer = _trainer_of(launch, submission)
    if trainer is None and is_sharded(submission, launch):
        trainer = from_launch(launch)
    config = ds_config_of(submission, trainer) if trainer else None
    if config is None:  # the one that the script names, else the only one there is
        named = named_in(submission, launch.script.text.path) or frozenset()
        configs = [each for each in configs_of(submission) if id(each.json) in named]
        config = configs[0] if len(configs) == 1 else used_config(submission)
    if trainer is None and config is None and is_data_parallel(launch):
        trainer = from_launch(launch)
    return ExistingRun(submission=submission, launch=launch, trainer=trainer, config=config)


def _trainer_of(launch: Launch, submission: Submission) -> TrainingArguments | None:
    """The Trainer's arguments of a launch line: those on it, else those in a file that it names."""
    arguments = submission.of(TrainingArguments)
    on_line = [each for each in arguments if each.launch is launch]
    if on_line:
        return on_line[-1]
    words = {word.value for word in launch.arguments if word.value}
    for each in arguments:
        if each.launch is None and any(end_alike(each.path, word) for word in words):
            return each
    return None
