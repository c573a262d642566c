"""What `dsgen init` asks: a value for each key that a job needs, from flags, files or the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from .printing import echo
from .proposals import Proposals


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One key that is asked for."""

    key: str
    flag: str
    text: str
    usual: str | None = None  #: what is proposed where nothing here says otherwise
    read: Callable[[str], Any] = str  #: of an answer; raises `click.UsageError` for one that is wrong


def _read_model(text: str) -> str:
    from pathlib import Path  # here, to save start-up time

    from ..catalog import find_model, load_catalog
    from .exits import unknown

    if find_model(text) is None and not Path(text).exists():
        unknown("model", text, load_catalog().models)
    return text


def _read_cluster(text: str) -> Any:
    """A node type; or an accelerator, of which the node is asked for."""
    from ..catalog import find_accelerator, find_node_type, load_catalog  # here, to save start-up time
    from .exits import unknown

    if find_node_type(text) is not None:
        return text
    accelerator = find_accelerator(text)
    if accelerator is None:
        catalog = load_catalog()
        unknown("node type or accelerator", text, [*catalog.node_types, *catalog.accelerators, *catalog.aliases])
    if not is_asked():
        nodes = [name for name, node in load_catalog().node_types.items() if node.accelerator == accelerator.name]
        raise click.UsageError(f"{text} is an accelerator; give --cluster a node type: {', '.join(nodes[:6])}")
    each = click.prompt("  GPUs of a node", default=8, type=click.IntRange(1, 1024), err=True)
    rate = click.prompt("  Network of a node, Gbit/s", default=200, type=click.FloatRange(0, 1_000_000), err=True)
    return {"accelerator": accelerator.name, "accelerators_per_node": each, "network_gbits_per_s_per_node": rate}


def _read_count(text: str) -> int | str:
    if text.isdigit() and 0 < int(text) <= 2**20:
        return int(text)
    if ".." in text:
        return text
    raise click.UsageError(f"{text!r} is not a number of GPUs")


def _one_of(kind: str, names: Callable[[], Any]) -> Callable[[str], str]:
    def read(text: str) -> str:
        from .exits import unknown  # here, to save start-up time

        known = names()
        return text if text in known else unknown(kind, text, known)

    return read


def _frameworks() -> Any:
    from ..frameworks import FRAMEWORKS  # here, to save start-up time

    return FRAMEWORKS


def _targets() -> Any:
    from ..launchers import LAUNCHERS  # here, to save start-up time

    return LAUNCHERS


QUESTIONS: Final = (
    Question(
        key="model",
        flag="--model",
        text="Model: a preset (dsgen catalog models), or a folder with a config.json",
        read=_read_model,
    ),
    Question(
        key="cluster",
        flag="--cluster",
        text="Machines: a node type (dsgen catalog node-types), or an accelerator",
        read=_read_cluster,
    ),
    Question(key="gpus", flag="--gpus", text="GPUs in all", read=_read_count),
    Question(
        key="framework",
        flag="--framework",
        text="Framework (deepspeed, huggingface, megatron-deepspeed, megatron-lm)",
        usual="deepspeed",
        read=_one_of("framework", _frameworks),
    ),
    Question(
        key="launch.target",
        flag="--target",
        text="Started by (slurm, azureml, shell, kubernetes, skypilot)",
        usual="slurm",
        read=_one_of("target", _targets),
    ),
)


def is_asked() -> bool:
    """Whether there is a terminal to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answered(known: Mapping[str, Any], found: Proposals) -> dict[str, Any]:
    """The answers to all questions: as known, else from the terminal. Without one, all that is missing is an error."""
    answers = {
        one.key: one.read(str(known[one.key])) if _is_text(known[one.key]) else known[one.key]
        for one in QUESTIONS
        if known.get(one.key) is not None
    }
    counted = "nodes" in known
    open_ = [one for one in QUESTIONS if one.key not in answers and not (one.key == "gpus" and counted)]
    if open_ and not is_asked():
        raise click.UsageError(_missing(open_, found))
    for question in open_:
        answers[question.key] = _asked(question, found, answers)
    return {**answers, **({"nodes": known["nodes"]} if counted else {})}


def _is_text(value: object) -> bool:
    return isinstance(value, str | int)


def _missing(questions: list[Question], found: Proposals) -> str:
    """All that nobody said, with the flags that say it and what this folder proposes."""
    lines = []
    for one in questions:
        here = found.values.get(one.key)
        told = f"  (here: {shown(here)}, from {found.sources[one.key]})" if here is not None else ""
        lines.append(f"  {one.flag:<12} {one.text}{told}")
    return "there is no terminal to ask; give\n" + "\n".join(lines)


def shown(value: Any) -> str:
    """A value as a prompt proposes it."""
    if isinstance(value, dict):
        return f"{value.get('accelerators_per_node')}x {value.get('accelerator')}"
    return str(value)


def _check_fill(gpus: object, cluster: object) -> None:
    """Refuse GPUs that fill no whole nodes: what follows would be an error of the spec."""
    from ..catalog import find_node_type  # here, to save start-up time

    node = None if isinstance(cluster, dict) else find_node_type(str(cluster))
    each = cluster["accelerators_per_node"] if isinstance(cluster, dict) else node and node.accelerators_per_node
    if each and isinstance(gpus, int) and gpus > each and gpus % each:
        less = gpus // each * each
        raise click.UsageError(f"{gpus} GPUs don't fill nodes of {each}; use {less} or {less + each}")


def _asked(question: Question, found: Proposals, answers: Mapping[str, Any]) -> Any:
    """An answer from the terminal, asked for until it is one."""
    here = found.values.get(question.key)
    default = shown(here) if here is not None else question.usual
    source = f" [from {found.sources[question.key]}]" if here is not None else ""
    while True:
        text = click.prompt(f"{question.text}{source}", default=default, err=True)
        if here is not None and text == default:
            return here
        try:
            answer = question.read(text)
            if question.key == "gpus":
                _check_fill(answer, answers.get("cluster"))
            return answer
        except click.UsageError as problem:
            columns = shutil.get_terminal_size().columns
            wrapper = textwrap.TextWrapper(columns, "  ", "  ", break_long_words=False, break_on_hyphens=False)
            echo(wrapper.fill(problem.message), err=True)
