"""The questions of `dsgen init`: a value for each key, from flags, files or the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click

from ..catalog import find_accelerator, find_model, find_node_type
from ..catalog.names import Machines, machines_of, nearest, nodes_with
from ..job.quantities import read_tokens
from ..job.resolve_names import described_node
from ..job.schema import frameworks, launch_targets
from ..numerals import read_whole, whole
from ..patterns import lazy_pattern
from .options import FINE_TUNING, PURPOSES
from .printing import echo, unknown
from .proposals import Proposals

_MOST_GPUS: Final = 2**20  # as `submission.world` has it, which would take long to import
_NODES: Final = lazy_pattern(r"([1-9][0-9]{0,5}) nodes?")
_PURPOSE: Final = "purpose"
RATE: Final = "cluster.network_gbits_per_s_per_node"
#: Sequences of a batch by purpose. **Source**: Taori et al., Stanford Alpaca (README, 128);
#: Dettmers et al. 2023, QLoRA (arXiv:2305.14314, appendix B.4, 16).
BATCHES: Final = {"fine-tuning": 128, "lora": 16}
_MODEL = "Model: a preset (dsgen catalog models), or a folder with a config.json"
_MACHINES = "Machines: a node type (dsgen catalog node-types), or GPUs per node, as in 4xa100-40gb"
_LENGTH = (
    "Train on (tokens, as in 300B; or sequences and passes over them, as in 50000 x 3; or none yet)"
)


class Question(NamedTuple):
    """One key that is asked for."""

    key: str
    flag: str
    read: Callable[[str], Any]  #: of an answer; raises `click.UsageError` for one that is wrong
    text: str
    typed: str = ""  #: what else can be typed, but not given with the flag
    usual: str | None = None  #: what is proposed where nothing here says otherwise
    is_needed: bool = True  #: whether a spec is not written without an answer


def _read_model(text: str) -> str:
    path = Path(text)
    if path.is_dir() and not (path / "config.json").exists():
        raise click.UsageError(f"the folder {text} has no config.json")
    if find_model(text) is None and not path.exists():
        near = nearest(text, "models")
        hint = f"did you mean {near!r}?" if near else "`dsgen catalog models` lists all"
        raise click.UsageError(f"unknown model {text!r}, and no such config.json; {hint}")
    return text


def read_cluster(text: str) -> Any:
    """A node type, or the cards of a node with their number, such as `4xa100-40gb`.

    A number that is left out is asked for.
    """
    if find_node_type(text) is not None:
        return text
    machines = machines_of(text)
    accelerator = find_accelerator(machines.accelerator if machines else text)
    if accelerator is None:
        near = nearest(text, "node_types") or nearest(text, "accelerators")
        hint = f"did you mean {near!r}?" if near else "`dsgen catalog node-types` lists all"
        raise click.UsageError(f"unknown node type or accelerator {text!r}; {hint}")
    if machines is None and not is_asked():
        nodes = ", ".join(node.name for node in nodes_with(accelerator)[:6])
        told = f"--cluster 4x{text} for nodes of 4, or a node type: {nodes}"
        raise click.UsageError(f"{text} is an accelerator: give {told}")
    if machines is None:
        per_node = click.prompt("  GPUs per node", 8, type=click.IntRange(1, 1024), err=True)
        return f"{per_node}x{accelerator.name}"
    nodes = f"{machines.nodes}x" if machines.nodes else ""
    return f"{nodes}{machines.per_node}x{accelerator.name}"


def _read_count(text: str) -> int | str:
    """A number of GPUs; or a range of them, or a number of nodes, as it is written."""
    count = read_whole(text)
    if count is not None and 0 < count <= _MOST_GPUS:
        return count
    if ".." in text or _NODES.fullmatch(text):
        return text
    raise click.UsageError(f"{text!r} is not a number of GPUs; write 64, or `8 nodes`")


def _read_duration(text: str) -> Any:
    """Tokens, or sequences and passes; None where the length isn't known yet."""
    passes = re.fullmatch(r"([1-9][0-9]*(?:\.[0-9]+)?[kKmM]?) ?[x×*] ?([1-9][0-9]*)", text.strip())
    if passes:
        return {"samples": read_tokens(passes[1]), "epochs": whole(passes[2])}
    if re.fullmatch(r"[1-9][0-9]*(?:\.[0-9]+)?(?:e[0-9]+)? ?[kKmMbBtT]?", text.strip()):
        return {"tokens": text.strip()}
    if text.strip().lower() == "none":
        return None
    raise click.UsageError(f"{text!r} is no length; write 300B, 50000 x 3, or none")


def _choice(
    key: str, kind: str, text: str, names: Iterable[str], usual: str, *, is_needed: bool = True
) -> Question:
    """A question with the names as possible answers."""
    choices = tuple(names)

    def read(answer: str) -> str:
        return answer if answer in choices else unknown(kind, answer, choices)

    shown_text = f"{text} ({', '.join(choices)})"
    return Question(key, f"--{kind}", read, shown_text, usual=usual, is_needed=is_needed)


QUESTIONS: Final = (
    Question("model", "--model", _read_model, _MODEL),
    Question("cluster", "--cluster", read_cluster, _MACHINES),
    Question("gpus", "--gpus", _read_count, "GPUs in all", typed=" (or: 8 nodes)"),
    _choice(_PURPOSE, "purpose", "For", PURPOSES, "pretraining", is_needed=False),
    _choice("framework", "framework", "Framework", frameworks(), "deepspeed"),
    _choice("launch.target", "target", "Started by", launch_targets(), "slurm"),
    Question(
        "training.duration",
        "--set training.duration",
        _read_duration,
        _LENGTH,
        usual="none",
        is_needed=False,
    ),
)


def is_asked() -> bool:
    """Return whether there is a terminal to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answered(
    known: Mapping[str, Any], proposed: Proposals, hints: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The answers to all questions: those that are `known`, else from the terminal.

    Without a terminal they are the proposals. An error then tells what is still missing, with the
    `hints` by key. A job's framework also answers what the job is for.
    """
    answers: dict[str, Any] = {}
    for question in QUESTIONS:
        value = known.get(question.key)
        if value is not None:
            # Flags give words, files may give whole sections.
            is_word = isinstance(value, str | int)
            answers[question.key] = question.read(str(value)) if is_word else value
    answers |= _implied(answers)

    machines = _counted_in(answers.get("cluster"))
    if machines and "gpus" not in proposed.values:
        gpus = (machines.nodes or 1) * machines.per_node
        proposed.add("gpus", gpus, f"--cluster {answers['cluster']}")

    open_questions = _open_questions(answers, known)
    if open_questions and not is_asked():
        answers |= _without_terminal(open_questions, proposed, hints)
    else:
        for question in open_questions:
            # An answer may have settled a question that was open before it.
            if question in _open_questions(answers, known):
                answers[question.key] = _asked(question, proposed, answers)
                answers |= _implied(answers)

    counted_nodes = _NODES.fullmatch(str(answers.get("gpus")))
    if counted_nodes:
        del answers["gpus"]
        answers["nodes"] = whole(counted_nodes[1])
    if "nodes" in known:
        answers["nodes"] = known["nodes"]
    answers = {key: value for key, value in answers.items() if value is not None}
    return with_network(answers, known)


def _open_questions(answers: Mapping[str, Any], known: Mapping[str, Any]) -> list[Question]:
    """The questions without an answer; a number of nodes answers that of GPUs."""
    machines = _counted_in(answers.get("cluster"))
    has_nodes = "nodes" in known or (machines is not None and machines.nodes)
    return [
        question
        for question in QUESTIONS
        if question.key not in answers and not (question.key == "gpus" and has_nodes)
    ]


def _without_terminal(
    questions: Sequence[Question], found: Proposals, hints: Mapping[str, str]
) -> dict[str, Any]:
    """The proposals as answers, which are printed. A needed answer that is missing is an error."""
    proposed = [question for question in questions if question.key in found.values]
    for source in dict.fromkeys(found.sources[question.key] for question in proposed):
        flags = [
            f"{question.flag} {shown(found.values[question.key])}"
            for question in proposed
            if found.sources[question.key] == source
        ]
        echo(f"from {source}: {', '.join(flags)}", err=True)

    missing = [each for each in questions if each not in proposed and each.is_needed]
    if missing:
        lines = list[str]()
        for question in missing:
            lines.append(f"  {question.flag:<12} {question.text}")
            if question.key in hints:
                lines.append(f"  {'':<12} {hints[question.key]}")
        raise click.UsageError("\n".join(("there is no terminal to ask; give", *lines)))
    return {question.key: found.values[question.key] for question in proposed}


def purpose_of(answers: Mapping[str, object]) -> str:
    """What a job is for. With the Trainer, a model of the Hub is one to fine-tune."""
    if any(path.startswith("training.lora") for path in answers):
        return "lora"
    has_trainer = answers.get("framework") == PURPOSES[FINE_TUNING]["framework"]
    is_of_hub = "/" in str(answers.get("model"))
    return FINE_TUNING if has_trainer and is_of_hub else "pretraining"


def _implied(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that follow from a job's purpose, and the purpose that a framework implies."""
    if answers.get(_PURPOSE) is None:
        return {_PURPOSE: purpose_of(answers)} if "framework" in answers else {}
    return {key: value for key, value in PURPOSES[answers[_PURPOSE]].items() if key not in answers}


def _counted_in(cluster: object) -> Machines | None:
    return machines_of(cluster) if isinstance(cluster, str) else None


def with_network(answers: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The answers with the network of several machines that are given by their cards.

    Its rate is asked for, or a guess where nobody can be asked.
    """
    machines = _counted_in(answers.get("cluster"))
    if machines is None:
        return answers
    accelerator, per_node = machines.accelerator, machines.per_node
    nodes = answers.get("nodes") or machines.nodes
    if not nodes:
        nodes = ceil(int(answers.get("gpus") or 1) / per_node)
    if machines.nodes and answers.keys().isdisjoint({"gpus", "nodes"}):
        answers = {**answers, "nodes": machines.nodes}

    rate = known.get(RATE)
    if rate is None and nodes == 1:
        return {**answers, "cluster": f"{per_node}x{accelerator}"}
    if rate is None:
        rate = described_node(accelerator, per_node)[RATE.partition(".")[2]]
        if is_asked():
            text, rates = "Network between nodes, Gbit/s per node", click.FloatRange(0, 1_000_000)
            rate = click.prompt(text, rate, type=rates, err=True)
    return {**answers, "cluster": described_node(accelerator, per_node, rate)}


def shown(value: Any) -> str:
    """A value as a prompt proposes it."""
    if isinstance(value, dict):
        return f"{value.get('accelerators_per_node')}x{value.get('accelerator')}"
    return str(value)


def gpus_of(answers: Mapping[str, Any]) -> int:
    """The number of GPUs by the answers; 1 where they don't say."""
    gpus, nodes = answers.get("gpus"), answers.get("nodes", 1)
    if "gpus" in answers:
        return gpus if isinstance(gpus, int) else 1
    per_node = _per_node(answers.get("cluster")) or 1
    return nodes * per_node if isinstance(nodes, int) else 1


def _per_node(cluster: object) -> int | None:
    """The GPUs of a node; None where the cluster isn't known."""
    if isinstance(cluster, dict):
        per_node: int = cluster["accelerators_per_node"]
        return per_node
    node = find_node_type(str(cluster))
    if node is not None:
        return node.accelerators_per_node
    machines = machines_of(str(cluster))
    return machines.per_node if machines is not None else None


def _asked(question: Question, proposals: Proposals, answers: Mapping[str, Any]) -> Any:
    """The answer from the terminal. The question is repeated until it can be read."""
    proposed = proposals.values.get(question.key)
    default = shown(proposed) if proposed is not None else question.usual
    source = ""
    # A model's config is its own source: it isn't named twice.
    if proposed is not None and proposals.sources[question.key] != proposed:
        source = f", from {proposals.sources[question.key]}"
    in_brackets = f" [{default}{source}]" if default else ""
    while True:
        text = click.prompt(
            f"{question.text}{question.typed}{in_brackets}",
            default=default,
            show_default=False,
            err=True,
        )
        if proposed is not None and text == default:
            return proposed
        try:
            answer = question.read(text)
            if question.key == "gpus":
                _require_whole_nodes(answer, _per_node(answers.get("cluster")))
            return answer
        except click.UsageError as problem:
            columns = shutil.get_terminal_size().columns
            wrapper = textwrap.TextWrapper(
                columns, "  ", "  ", break_long_words=False, break_on_hyphens=False
            )
            echo(wrapper.fill(problem.message), err=True)


def _require_whole_nodes(gpus: object, per_node: int | None) -> None:
    """Refuse a number of GPUs on several nodes that leaves some of the last one's unused."""
    if per_node and isinstance(gpus, int) and gpus > per_node and gpus % per_node:
        fewer = gpus // per_node * per_node
        raise click.UsageError(
            f"{gpus} GPUs don't fill nodes of {per_node}; use {fewer} or {fewer + per_node}"
        )
