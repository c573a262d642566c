"""The built-in job, which is planned where no spec is given, and what flags make of it."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

import click

from .. import InvalidJob, check_job
from ..findings import Severity
from ..job.resolve import DEFAULT_FRAMEWORK
from ..numerals import read_whole
from ..programs.frameworks import FRAMEWORKS
from ..resources import read_text
from .options import DEFAULT_SPEC


class NamedText(io.StringIO):
    """A text as a stream with a name, for messages."""

    name = "<built-in job>"


def built_in_job() -> NamedText:
    """The built-in job's spec."""
    return NamedText(read_text(__package__, "default_job.yaml"))


#: Keys of the built-in job, with the keys whose values were chosen to go with them.
_CHOSEN_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "model": (
        "name",
        "framework",
        "cluster",
        "gpus",
        "launch.script",
        "launch.time_limit",
        "training.sequence_length",
        "training.global_batch",
        "training.duration",
        "training.precision",
        "training.optimizer",
        "training.attention",
    ),
    "framework": ("launch.script", "launch.time_limit"),
    "cluster": ("training.precision", "training.attention", "launch.time_limit"),
}
#: Tokens of a batch where none is given: that of every Llama 2 (2307.09288, table 1).
_BATCH_TOKENS: Final = 4_194_304


def fitted_example(
    overrides: Mapping[str, object], swept: Collection[str] = ()
) -> tuple[Mapping[str, object], str]:
    """Overrides that fit the built-in job to a request, and a sentence about it.

    Where the request names another framework or cluster, the values that were chosen for that of
    the built-in job are taken out: `None` does so. Where it names another model, only the launcher
    stays as it is: the request has to name the machines, and the batch has a default. Keys that are
    `swept` get their values later.
    """
    sections = {path.partition(".")[0] for path in overrides}
    chosen = [key for section, keys in _CHOSEN_FOR.items() if section in sections for key in keys]
    if not chosen:
        return overrides, f"the built-in example (no SPEC, and no {DEFAULT_SPEC} in this folder)"

    if _changes_folder(overrides.get("framework")):
        chosen.append("output.checkpoints")  # a relative path
    taken_out: dict[str, object] = {key: None for key in chosen if key not in overrides}
    if not names_another(overrides):
        names = ", ".join(path.rpartition(".")[2] for path in taken_out)
        return {**taken_out, **overrides}, f"the built-in example, less its {names}"

    _require_machines(sections.union(swept))
    defaults = _default_batch(overrides)
    told = [_batch_in_words(batch) for batch in defaults.values()]
    if "framework" not in sections:
        # A sweep gives the number later; one node shows whether a framework takes the model.
        machines = {} if {"gpus", "nodes"} & sections else {"nodes": 1}
        usual = _usual_framework({**taken_out, **defaults, **machines, **overrides})
        defaults = {"framework": usual.name, **defaults}
        told = [usual.in_words, *told]
    sentence = f"from the flags; defaults: {', '.join(told)}" if told else "from the flags"
    return {**taken_out, **defaults, **overrides}, sentence


def names_another(overrides: Mapping[str, object]) -> bool:
    """Whether a request names another model than the built-in job's, and so a job of its own."""
    return any(path.partition(".")[0] == "model" for path in overrides)


def _changes_folder(framework: object) -> bool:
    """Whether this is a framework whose launcher changes the working folder."""
    known = FRAMEWORKS.get(framework) if isinstance(framework, str) else None
    return known is not None and known.changes_folder


def _require_machines(settings: Collection[str]) -> None:
    """Refuse another model without the machines that train it."""
    missing = []
    if "gpus" not in settings and "nodes" not in settings:
        missing.append("--gpus")
    if "cluster" not in settings:
        missing.append("--cluster")
    if missing:
        needs = f"--model needs {' and '.join(missing)} too"
        raise click.UsageError(
            f"without a job spec, {needs}: the built-in example is for its own model"
        )


def _batch_in_words(batch: object) -> str:
    size = f"{batch:,} sequences" if isinstance(batch, int) else f"{_BATCH_TOKENS:,} tokens"
    return f"batch of {size}"


#: Frameworks in the order in which they are tried for a job that names none.
_USUAL: Final = (DEFAULT_FRAMEWORK, "megatron-lm", "huggingface")


class _Usual(NamedTuple):
    """A framework for a job that names none."""

    name: str
    refused: Mapping[str, Sequence[str]]  #: rules by which those before it refuse the job

    @property
    def in_words(self) -> str:
        """Its name, and why none of those before it was taken."""
        if not self.refused:
            return self.name
        rules = ", ".join(sorted({rule for each in self.refused.values() for rule in each}))
        verb = "refuses" if len(self.refused) == 1 else "refuse"
        return f"{self.name} ({' and '.join(self.refused)} {verb} the job: {rules})"


def _usual_framework(overrides: Mapping[str, object]) -> _Usual:
    """The first usual framework that can train the model which the flags name.

    It is the one that gives the job the fewest warnings. Warnings on other things, such as the
    cluster, come with every framework. Where none takes the job it is the default one, whose
    findings say why.
    """
    warnings: dict[str, int] = {}
    refused: dict[str, Sequence[str]] = {}
    for name in _USUAL:
        try:
            asked = {**overrides, "framework": name}
            _, findings = check_job(built_in_job(), overrides=asked, check_pins=False)
        except InvalidJob as problem:
            errors = (each for each in problem.findings if each.severity is Severity.ERROR)
            refused[name] = sorted({error.rule for error in errors})
            continue
        warnings[name] = sum(finding.severity is Severity.WARNING for finding in findings)
        if not warnings[name]:
            return _Usual(name, refused)
    if not warnings:
        return _Usual(DEFAULT_FRAMEWORK, {})
    return _Usual(min(warnings, key=warnings.__getitem__), refused)


def usual_batch(purpose: str, answers: Mapping[str, object]) -> object:
    """A usual batch: tokens to pretrain, sequences that divide among all GPUs to fine-tune."""
    from .questions import BATCHES, gpus_of  # here, to save start-up time

    sequences, gpus = BATCHES.get(purpose), gpus_of(answers)
    if not sequences:
        return {"tokens": _BATCH_TOKENS}
    return ceil(sequences / gpus) * gpus


def _default_batch(overrides: Mapping[str, object]) -> dict[str, object]:
    """The batch where none is given: tokens, or sequences where a trained model is tuned."""
    has_batch = any(path.startswith("training.global_batch") for path in overrides)
    if "training" in overrides or has_batch:
        return {}
    from .questions import purpose_of  # here, to save start-up time

    purpose = purpose_of(overrides)
    if purpose != "pretraining":
        return {"training.global_batch": usual_batch(purpose, overrides)}
    tokens = read_whole(str(overrides.get("training.sequence_length", 1)))
    # A length of 0 passes here: the check of the job says more of it.
    if tokens is None or _BATCH_TOKENS % (tokens or 1):
        raise click.UsageError(
            f"add --global-batch: the default of {_BATCH_TOKENS} tokens isn't whole sequences"
        )
    return {"training.global_batch": {"tokens": _BATCH_TOKENS}}
