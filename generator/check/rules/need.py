"""The memory that a run needs by its files, or why that isn't known: what all readers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

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
#: Products stay below this: numpy's integers have 63 bits and a sign, and sums need room.
_INTEGERS: Final = 2**62


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
    return submission.planned if submission.job is None else submission.job


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


#: An expression that AzureML replaces by an input or an output.
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
    """Why the files may not be of the run in the plan beside them; else empty.

    dsgen doesn't understand the training script's own options, such as the model or the length of a
    sequence. But `arguments.txt` has them as they were planned, so a change shows. Where a job spec
    is given, it counts instead. A config that was read is judged itself, and its path, which may be
    one in a container, isn't compared.
    """
    if submission.job is not None or submission.planned is None:
        return ""
    path = submission.plan_files[0].parent / "arguments.txt"
    text = text_around(path, path.parent)
    if not text:
        return "arguments.txt is not there, which has the script's options as they were planned"

    planned_words = frozenset(text.split())
    places_of_configs = {link.where for link in submission.references if link.documents}
    changed = dict[str, None]()  # names of options, in order
    for launch in submission.launches:
        for option in _own_options(launch):
            is_planned = not planned_words.isdisjoint(_planned_forms(option.value, submission))
            if option.where not in places_of_configs and not is_planned:
                changed[option.name] = None
    if not changed:
        return ""
    verb = "has another value" if len(changed) == 1 else "have other values"
    names = mask(", ".join(list(changed)[:MOST_NAMED]))
    return f"{names} {verb} than in arguments.txt, which has those of the plan"


def _planned_forms(text: str, submission: Submission) -> Iterator[str]:
    """The forms that a value of a launch line may have in a plan's arguments.

    In AzureML's jobs an expression stands for an input or output: the plan has its path. A file
    beside the job is one in the folder of `arguments.txt`.
    """
    yield text
    if "${{" not in text:
        return
    for job in submission.of(AzureMLJob):
        filled = _with_paths(text, job)
        if filled is not None:
            yield filled
            yield f'"$CONFIG_DIR"/{filled.removeprefix("./")}'


def _with_paths(text: str, job: AzureMLJob) -> str | None:
    """The text with the paths of inputs and outputs for their expressions; None without a path."""
    for expression in list(_EXPRESSION.finditer(text)):
        path = job.value(f"{expression[1]}/{expression[2]}/path")
        if not isinstance(path, str):
            return None
        text = text.replace(expression[0], path)
    return text.replace('"', "")


class _OwnOption(NamedTuple):
    """An option of the program's own with a value: neither Trainer's nor launcher's."""

    name: str  #: as it is written
    value: str
    where: Location


def _own_options(launch: Launch) -> Iterator[_OwnOption]:
    """The options with values that are the program's own; one for each of several values."""
    name = ""
    for word in launch.arguments:
        text = word.value if word.value is not None else word.raw
        if text.startswith("--"):
            name, _, text = text.partition("=")
        if text and name and name[2:].replace("-", "_") not in known_arguments():
            yield _OwnOption(name, text, launch.script.locate(word))
