"""`MegatronRun`: the arguments of one program as a typed view, which the rules read.

It also has what the submission says of the program's GPUs and config. At the end of the file are
the functions that read `--pipeline-model-parallel-layout` as Megatron-LM's parser does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from ...numerals import whole
from ...submission.submission import Submission
from ...submission.world import world_of
from ..deepspeed.config import Config
from ..deepspeed.submission import configs_of, named_in
from ..program import schedule_of
from ..python_around import release_in
from ..releases import Release
from .arguments import MegatronArguments
from .options import LM, flavour_of
from .table import option_of, size

TENSOR: Final = "--tensor-model-parallel-size"
PIPELINE: Final = "--pipeline-model-parallel-size"
CONTEXT: Final = "--context-parallel-size"
EXPERT: Final = "--expert-model-parallel-size"
MICRO: Final = "--micro-batch-size"
GLOBAL: Final = "--global-batch-size"
SCHEDULE: Final = "--step-batch-size-schedule"
PROGRAM: Final = "megatron-core"  #: as releases call it
_SPEC_KEY: Final = "megatron_version"  #: of a job, which names the release
LAYERS: Final = "--num-layers"
HEADS: Final = "--num-attention-heads"
LAYERS_PER_CHUNK: Final = "--num-layers-per-virtual-pipeline-stage"
CHUNKS: Final = "--num-virtual-stages-per-pipeline-rank"
FIRST_STAGE: Final = "--decoder-first-pipeline-num-layers"
LAST_STAGE: Final = "--decoder-last-pipeline-num-layers"
STAGE_LAYOUT: Final = "--pipeline-model-parallel-layout"
#: Options that say a size: of the model, a batch, or a group of ranks.
SIZES: Final = (
    TENSOR,
    PIPELINE,
    CONTEXT,
    EXPERT,
    MICRO,
    GLOBAL,
    LAYERS,
    HEADS,
    "--hidden-size",
    "--ffn-hidden-size",
    "--kv-channels",
    "--num-query-groups",
    "--seq-length",
    "--num-experts",
    "--max-position-embeddings",
    "--vocab-size",
    "--moe-ffn-hidden-size",
    "--moe-router-topk",
)
#: Ends of the model that count as layers of a stage.
COUNTED_ENDS: Final = (
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
)

#: Ways to divide layers that have no number of layers per stage.
_OTHER_CUTS: Final = (
    STAGE_LAYOUT,
    "--hybrid-layer-pattern",
    "--hybrid-override-pattern",
    "--standalone-embedding-stage",
)
_CUTS: Final = (*_OTHER_CUTS, *COUNTED_ENDS, FIRST_STAGE, LAST_STAGE, LAYERS_PER_CHUNK, CHUNKS)
#: Options that give stages different numbers of layers, or another number of layers.
UNEVEN: Final = (
    FIRST_STAGE,
    LAST_STAGE,
    STAGE_LAYOUT,
    "--hybrid-layer-pattern",
    "--hybrid-override-pattern",
    "--heterogeneous-layers-config-path",
)
#: GPUs divided in ways beyond tensor × pipeline × context: encoders' own ranks, weight shards.
_OTHER_SIZES: Final = (
    "--encoder-tensor-model-parallel-size",
    "--encoder-pipeline-model-parallel-size",
    "--tensor-parallel-num-weight-shards",
    "--yaml-cfg",
)
#: What a legal list of chunks has: each requirement in words, and whether its letters meet it.
_REQUIREMENTS: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    (
        "must begin with E, the embedding, and have no other",
        lambda text: text[:1] == "E" and text.count("E") == 1,
    ),
    (
        "must end with L, the loss, and have no other",
        lambda text: text[-1:] == "L" and text.count("L") == 1,
    ),
    (
        "must have m, layers that predict further tokens, after every t",
        lambda text: "t" not in text.partition("m")[2],
    ),
)


def _size_of(name: str) -> cached_property[int | None]:
    return cached_property(lambda run: run.size(name))


def _degree_of(key: str) -> cached_property[int | None]:
    return cached_property(lambda run: run.degree(option_of(key, run.flavour)))


@dataclass(frozen=True, kw_only=True, eq=False)
class MegatronRun(MegatronArguments):
    """Megatron arguments, with the submission that they are part of.

    Sizes are None where they can't be known, or are no sizes: below 1, or more than 32 bits hold.
    """

    submission: Submission

    def has_any(self, *names: str) -> bool:
        return any(map(self.has, names))

    def lacks_all(self, *names: str) -> bool:
        return all(map(self.lacks, names))

    def first_of(self, *names: str) -> str:
        """The first of the options that is given, else the first."""
        return next(filter(self.has, names), names[0])

    def size(self, name: str) -> int | None:
        """The size that an option gives."""
        return size(self.integer(name))

    def degree(self, name: str) -> int | None:
        """The size of a group of ranks, which is 1 by default."""
        return size(self.setting(name, 1))

    def shown(self, name: str, default: object = None) -> str:
        """Return an option with its value, as in `--hidden-size 4096`.

        The value is the default's where nothing is given.
        """
        return f"{name} {self.value(name)}" if self.has(name) else f"{name} {default} (the default)"

    @property
    def is_lm(self) -> bool:
        return self.flavour == LM

    @property
    def trains(self) -> bool:
        return self.is_planned or super().trains

    @cached_property
    def is_planned(self) -> bool:
        """Return whether it is the training run of the submission's job spec.

        The script may have any name.
        """
        job = self.submission.job
        if job is None or self.launch is None or flavour_of(job) != self.flavour:
            return False
        return PurePosixPath(job.launch.script).name == self.program

    tensor = _degree_of("layout.tensor")  #: tensor parallelism
    pipeline = _degree_of("layout.pipeline")  #: pipeline stages
    context = _degree_of("layout.context")  #: context parallelism; of Megatron-DeepSpeed, Ulysses
    expert = _degree_of("layout.expert")  #: expert parallelism
    micro_batch = _size_of(MICRO)  #: sequences of a pass
    layers = _size_of(LAYERS)  #: of the model
    heads = _size_of(HEADS)  #: of the attention
    experts = _size_of("--num-experts")  #: of a layer

    @cached_property
    def release(self) -> Release:
        """The release of Megatron-Core that the arguments are for: the job's, else the one that
        the repository names, else the newest.
        """
        job = self.submission.job
        if job is not None and job.framework.name == self.flavour:
            return Release(program=PROGRAM, version=job.megatron_version, where=_SPEC_KEY)
        return release_in(self.submission, PROGRAM, self.path)

    @cached_property
    def schedule(self) -> tuple[tuple[int, int], ...]:
        """Batches by the tokens from which they hold; empty where none are scheduled."""
        text = self.value(SCHEDULE)
        return schedule_of(text) if isinstance(text, str) else ()

    @cached_property
    def global_batch(self) -> int | None:
        """Sequences of a step; of a schedule, of its last steps."""
        return self.schedule[-1][1] if self.schedule else self.size(GLOBAL)

    @cached_property
    def ramp(self) -> tuple[int, int, int] | None:
        """The start, the increment and the sequences of a schedule that grows evenly."""
        length, batches = self.sequence_length, [batch for _, batch in self.schedule]
        steps = {after - before for before, after in pairwise(batches)}
        if not length or len(steps) != 1 or min(steps) < 1:
            return None
        return batches[0], min(steps), self.schedule[-1][0] // length

    @cached_property
    def recomputes(self) -> object:
        """The granularity of recomputation.

        None where no option gives one, or it can't be known.
        """
        selective = "selective" if self.has("--recompute-activations") else None
        return self.value("--recompute-granularity") or selective

    @cached_property
    def shared_layers(self) -> int | None:
        """The layers that stages share, with the ends included where they count.

        None where they can't be known.
        """
        layers = self.size(self.first_of(LAYERS, "--encoder-num-layers"))
        if layers is None or self.varies or self.has_any(*_OTHER_CUTS):
            return None
        if not self.sure(*_CUTS, as_written=True):
            return None
        return layers + sum(map(self.has, COUNTED_ENDS))

    @cached_property
    def listed_chunks(self) -> tuple[str, ...] | None:
        """The model's chunks, each as its letters, where an option lists them."""
        text = self.value(STAGE_LAYOUT)
        return chunks_of(text) if isinstance(text, str) else None

    @cached_property
    def chunks(self) -> int | None:
        """Model chunks of a stage; None where interleaving isn't asked for, or can't be known."""
        if self.has(STAGE_LAYOUT):
            listed, stages = self.listed_chunks, self.pipeline
            if listed and stages and len(listed) % stages == 0:
                return len(listed) // stages
            return None
        if self.has(CHUNKS):
            return self.size(CHUNKS)
        layers, stages, per_chunk = self.shared_layers, self.pipeline, self.size(LAYERS_PER_CHUNK)
        if not per_chunk or layers is None or stages is None or layers % stages:
            return None
        of_stage = layers // stages
        return None if of_stage % per_chunk else of_stage // per_chunk

    @cached_property
    def model_parallel(self) -> int | None:
        """GPUs that hold one replica; None where a size isn't known, or others divide them too."""
        if self.tensor is None or self.pipeline is None or self.context is None:
            return None
        if self.has_any(*_OTHER_SIZES):
            return None
        return self.tensor * self.pipeline * self.context

    @cached_property
    def gpus(self) -> int | None:
        """The GPUs of the run.

        None where the submission has several jobs and none of them is surely its own.
        """
        submission = self.submission
        if len({script.path for script in submission.shell_texts}) < 2:
            return world_of(submission).gpus
        of_this_file = tuple(
            document
            for document in submission.documents
            if getattr(document, "path", None) == self.path
        )
        part = replace(submission, documents=of_this_file, around=submission.files)
        return world_of(part).gpus

    @cached_property
    def replicas(self) -> int | None:
        """Model replicas; None where the GPUs are not known or don't divide into replicas."""
        gpus, size = self.gpus, self.model_parallel
        return gpus // size if gpus and size and gpus % size == 0 else None

    @cached_property
    def config(self) -> Config | None:
        """Megatron-DeepSpeed's DeepSpeed config: the one named, else the only one.

        None where that can't be known.
        """
        if self.is_lm:
            return None
        configs = configs_of(self.submission)
        named = named_in(self.submission, self.path)
        of_this_file = [
            config
            for config in configs
            if config.path == self.path or id(config.json) in (named or ())
        ]
        candidates = of_this_file or (configs if named is None else ())
        return candidates[0] if len(candidates) == 1 else None


def megatron_runs(submission: Submission) -> Iterator[MegatronRun]:
    """A view of each set of Megatron arguments in a submission."""
    for arguments in submission.of(MegatronArguments):
        if arguments.given:
            values = {field.name: getattr(arguments, field.name) for field in fields(arguments)}
            yield MegatronRun(**values, submission=submission)


#: **Source** of what follows: NVIDIA/Megatron-LM
#: megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list and
#: validate_layer_layout @ core_v0.16.1. The letters of a chunk: the embedding, layers, layers that
#: predict further tokens, the loss.
LETTERS: Final = "EtmL"
#: More letters than any model has layers.
_MOST: Final = 100_000
#: What is repeated, and how often. Also parentheses without a number, so that each is read once.
_REPEATS: Final = (
    re.compile(r"\(([^)]+)(?:\)\*([0-9]+)|\)?)"),
    re.compile(r"(.)\*([0-9]+)"),
)


def chunks_of(text: str) -> tuple[str, ...] | None:
    """Return the chunks in the order of the model, each as its letters.

    Returns None where the text is too long to be a model.
    """
    text = text.replace(",", "")
    for pattern in _REPEATS:
        sizes = (len(match[1]) * whole(match[2]) for match in pattern.finditer(text) if match[2])
        if sum(sizes) >= _MOST:
            return None
        text = pattern.sub(_repeated, text)
    return tuple(text.split("|"))


def _repeated(match: re.Match[str]) -> str:
    """The text that a repeat such as `(ab)*3` stands for; the match itself without a number."""
    return match[1] * whole(match[2]) if match[2] else match[0]


def stage_sizes(chunks: tuple[str, ...], stages: int) -> list[int]:
    """Layers of every stage, all its chunks together."""
    return [sum(chunk.count("t") for chunk in chunks[stage::stages]) for stage in range(stages)]


def uneven_ends(chunks: tuple[str, ...], stages: int) -> tuple[int, int]:
    """Layers of first and last stage where the others, chunk by chunk, are equal; else 0 and 0.

    A list of which this isn't true is left to what the estimate makes of it.
    """
    if stages < 3:
        return 0, 0
    sizes, chunks_of_stage = stage_sizes(chunks, stages), len(chunks) // stages
    first, *inner, last = sizes
    are_whole = all(size and size % chunks_of_stage == 0 for size in sizes)
    if not are_whole or len(set(inner)) != 1 or len(set(sizes)) == 1:
        return 0, 0
    return first, last


def faults(chunks: tuple[str, ...], stages: int) -> list[str]:
    """Requirements that chunks break, whatever the model."""
    text = "".join(chunks)
    strange = sorted(set(text) - set(LETTERS))
    if strange:
        return [f"has {strange[0]}: only E, t, m, L, |, commas, parentheses and *N have a meaning"]
    broken = [words for words, holds in _REQUIREMENTS if not holds(text)]
    with_m = [index for index, chunk in enumerate(chunks) if "m" in chunk]
    first_of_last = len(chunks) - stages  # the chunks from here on are the last of their stages
    if len(with_m) > 1 or any(index < first_of_last for index in with_m):
        broken.append("must have every m in one chunk, the last chunk of its stage")
    return broken
