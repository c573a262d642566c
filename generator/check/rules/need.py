"""The memory that a run needs, as files say it, or why that isn't known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...dataclass import dataclass
from ...estimate.layout import Layout
from ...estimate.ledgers import Memory
from ...estimate.memory import memory
from ...facts.facts import Facts
from ...findings import Location
from ...job.records import Job
from ...patterns import lazy_pattern
from ...programs.azureml.job import AzureMLJob
from ...programs.deepspeed.config import OFFLOADED, Config
from ...programs.megatron.facts import MegatronFacts
from ...programs.trainer.training_arguments import known_arguments
from ...rules.layout.identities import known_values, whole_layout
from ...secrets import mask
from ...submission.launches import Launch
from ...submission.submission import Submission
from ...text.around import text_around

MOST_NAMED: Final = 3  #: facts or options in a reason
_INTEGERS: Final = 2**62  # numpy's are 64 bits wide; half of that is left for what is added


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A run with the memory that it needs."""

    facts: Facts
    job: Job  #: made of the facts, with assumptions for those that are unknown
    layout: Layout
    ledger: Memory
    #: whether the submission has a job spec; its plan has compared the ZeRO stages by their time
    planned: bool
    device: str | None  #: where offloaded states go: `cpu` or `nvme`
    pinned: bool  #: whether their buffers are pinned
    #: whether all memory is counted; of a config alone, little more than the model states is
    whole: bool
    #: whether a job spec has what the files leave open, so that its plan's verdict holds
    of_spec: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A run of which the memory isn't estimated, though a job or its machines are known."""

    where: Location
    reason: str


def planned_of(submission: Submission) -> Job | None:
    """The job of the spec, else that of the plan beside the files."""
    return submission.job or submission.planned


def need_of(
    submission: Submission,
    facts: Facts,
    job: Job,
    device: str | None,
    *,
    of_spec: bool = False,
    pinned: bool,
) -> Iterator[Need]:
    """The need of one run; nothing where its layout isn't known or its sizes are absurd."""
    layout = whole_layout(known_values(job))
    whole = of_spec or isinstance(facts, MegatronFacts)
    if layout and (not whole or fits_integers(job, layout)):
        yield Need(
            facts=facts,
            job=job,
            layout=layout,
            ledger=memory(job, layout),
            planned=submission.job is not None,
            device=device,
            pinned=pinned,
            whole=whole,
            of_spec=of_spec,
        )


#: What AzureML puts an input or output in for.
_EXPRESSION: Final = lazy_pattern(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}")


def fits_integers(job: Job, layout: Layout) -> bool:
    """Whether the products of all sizes fit into the 64-bit integers that numpy computes with."""
    model, training = job.model, job.training
    heads = max(getattr(mixer, "heads", 1) for mixer in model.mixers)
    head_dim = max(getattr(mixer, "head_dim", 1) for mixer in model.mixers)
    widths = model.hidden * (model.hidden + model.ffn) * heads * head_dim
    batch = training.sequence_length * layout.micro_batch * layout.gradient_accumulation
    return max(widths * model.layers, model.layers * model.hidden * heads * batch) < _INTEGERS


def is_pinned(config: Config) -> bool:
    """Whether any buffer of offloaded states is pinned, or may be."""
    return any(
        config.switch(f"/zero_optimization/offload_{what}/pin_memory") is not False
        for what in OFFLOADED
        if config.offloads(what)
    )


def other_than_planned(submission: Submission) -> str:
    """Why the plan beside files may not be of their run, by what dsgen doesn't read; else empty.

    The script's own options, such as the length of a sequence or the model, are those that it was
    written with: they stand in `arguments.txt`, too. With a job spec they are what that says.
    A config that was read is judged itself, whatever its path in a container is.
    """
    if submission.job is not None or submission.planned is None:
        return ""
    listed = submission.plan_files[0].parent / "arguments.txt"
    text = text_around(listed, listed.parent)
    if not text:
        return "arguments.txt is not there, which has the script's options as they were planned"
    words = frozenset(text.split())
    configs = {link.where for link in submission.references if link.documents}
    others = dict.fromkeys(
        name
        for launch in submission.launches
        for name, word, where in _own_values(launch)
        if where not in configs and words.isdisjoint(_planned_forms(word, submission))
    )
    if not others:
        return ""
    verb = "has another value" if len(others) == 1 else "have other values"
    named = mask(", ".join(list(others)[:MOST_NAMED]))
    return f"{named} {verb} than in arguments.txt, which has those of the plan"


def _planned_forms(text: str, submission: Submission) -> Iterator[str]:
    """A value as a plan's arguments may have it.

    What AzureML puts in for an input or output is the path that the job has for it; a file beside
    the job is one of the folder of `arguments.txt`.
    """
    yield text
    for job in submission.of(AzureMLJob):
        paths = (job.value(f"{one[1]}/{one[2]}/path") for one in _EXPRESSION.finditer(text))
        if "${{" in text and all(isinstance(path, str) for path in paths):
            filled = _EXPRESSION.sub(
                lambda one, job=job: str(job.value(f"{one[1]}/{one[2]}/path")),  # type: ignore[misc]
                text,
            ).replace('"', "")
            yield filled
            yield f'"$CONFIG_DIR"/{filled.removeprefix("./")}'


def _own_values(launch: Launch) -> Iterator[tuple[str, str, Location]]:
    """The values of options that are the program's own, and not the Trainer's, with their places.

    An option is as it is written.
    """
    name = ""
    for word in launch.arguments:
        text = word.value if word.value is not None else word.raw
        if text.startswith("--"):
            name, _, text = text.partition("=")
        if text and name and name[2:].replace("-", "_") not in known_arguments():
            yield name, text, launch.script.locate(word)
