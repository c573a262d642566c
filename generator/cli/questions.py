"""The questions of `dsgen init`: a value for each key that a job needs, from flags, files or the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from ..dataclass import dataclass
from ..job.resolve_cluster import ASSUMED_GBITS
from ..job.schema import launch_targets
from .printing import echo
from .proposals import Proposals

_NODES: Final = re.compile(r"([1-9][0-9]{0,5}) nodes?")
_COUNTED: Final = re.compile(r"([1-9][0-9]{0,3}) ?x ?(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One key that is asked for."""

    key: str
    flag: str
    text: str
    typed: str = ""  #: what else can be typed, but not given with the flag
    usual: str | None = None  #: what is proposed where nothing here says otherwise
    read: Callable[[str], Any] = str  #: of an answer; raises `click.UsageError` for one that is wrong


def _read_model(text: str) -> str:
    from pathlib import Path  # here, to save start-up time

    from ..catalog import find_model, load_catalog
    from .printing import unknown

    if find_model(text) is None and not Path(text).exists():
        unknown("model", text, load_catalog().models)
    return text


def read_cluster(text: str, rate: float | None = None) -> Any:
    """A node type; or an accelerator and how many a node has, as in 4xa100-40gb. What is open is asked for."""
    from ..catalog import find_accelerator, find_node_type, load_catalog  # here, to save start-up time
    from .printing import unknown

    if find_node_type(text) is not None:
        return text
    counted = _COUNTED.fullmatch(text)
    each, kind = (int(counted[1]), counted[2]) if counted else (None, text)
    accelerator = find_accelerator(kind)
    if accelerator is None:
        catalog = load_catalog()
        unknown("node type or accelerator", kind, [*catalog.node_types, *catalog.accelerators, *catalog.aliases])
    if is_asked():
        each = each or click.prompt("  GPUs of a node", default=8, type=click.IntRange(1, 1024), err=True)
        rates = click.FloatRange(0, 1_000_000)
        if rate is None:
            rate = click.prompt("  Network of a node, Gbit/s", default=ASSUMED_GBITS, type=rates, err=True)
    else:
        nodes = [name for name, node in load_catalog().node_types.items() if node.accelerator == accelerator.name]
        if each is None:
            told = f"--cluster 4x{text} for nodes of 4, or a node type: {', '.join(nodes[:6])}"
            raise click.UsageError(f"{text} is an accelerator: give {told}")
        rate = ASSUMED_GBITS if rate is None else rate
    return {"accelerator": accelerator.name, "accelerators_per_node": each, "network_gbits_per_s_per_node": rate}


def _read_count(text: str) -> int | str:
    """A number or range of GPUs; or a number of nodes, as it is."""
    if text.isdigit() and 0 < int(text) <= 2**20:
        return int(text)
    if ".." in text or _NODES.fullmatch(text):
        return text
    raise click.UsageError(f"{text!r} is not a number of GPUs; write 64, or `8 nodes`")


def _one_of(kind: str, names: Callable[[], Any]) -> Callable[[str], str]:
    def read(text: str) -> str:
        from .printing import unknown  # here, to save start-up time

        known = names()
        return text if text in known else unknown(kind, text, known)

    return read


def _frameworks() -> Any:
    from ..programs.frameworks import FRAMEWORKS  # here, to save start-up time

    return FRAMEWORKS


def _targets() -> Any:
    from ..programs.launchers import LAUNCHERS  # here, to save start-up time

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
        text="Machines: a node type (dsgen catalog node-types), or GPUs of a node, as in 4xa100-40gb",
        read=read_cluster,
    ),
    Question(key="gpus", flag="--gpus", text="GPUs in all", typed=" (or: 8 nodes)", read=_read_count),
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
        text=f"Started by ({', '.join(launch_targets())})",
        usual="slurm",
        read=_one_of("target", _targets),
    ),
)


def is_asked() -> bool:
    """Return whether there is a terminal to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answered(known: Mapping[str, Any], found: Proposals) -> dict[str, Any]:
    """The answers to all questions: as known, else from the terminal. Without one, they are what is found here, and
    all that is still missing is an error."""
    answers = {
        one.key: one.read(str(known[one.key])) if isinstance(known[one.key], str | int) else known[one.key]
        for one in QUESTIONS
        if known.get(one.key) is not None
    }
    counted = "nodes" in known
    open_ = [one for one in QUESTIONS if one.key not in answers and not (one.key == "gpus" and counted)]
    if open_ and not is_asked():
        taken = [one for one in open_ if one.key in found.values]
        _tell_taken(taken, found)
        answers |= {one.key: found.values[one.key] for one in taken}
        open_ = [one for one in open_ if one not in taken]
        if open_:
            missing = "\n".join(f"  {one.flag:<12} {one.text}" for one in open_)
            raise click.UsageError(f"there is no terminal to ask; give\n{missing}")
    for question in open_:
        answers[question.key] = _asked(question, found, answers)
    if said := _NODES.fullmatch(str(answers.get("gpus"))):
        del answers["gpus"]
        answers["nodes"] = int(said[1])
    return {**answers, **({"nodes": known["nodes"]} if counted else {})}


def _tell_taken(questions: list[Question], found: Proposals) -> None:
    """Print what is taken without being asked for: each flag as it would be given, by where its value is from."""
    for source in dict.fromkeys(found.sources[one.key] for one in questions):
        flags = [f"{one.flag} {shown(found.values[one.key])}" for one in questions if found.sources[one.key] == source]
        echo(f"from {source}: {', '.join(flags)}", err=True)


def shown(value: Any) -> str:
    """A value as a prompt proposes it."""
    if isinstance(value, dict):
        return f"{value.get('accelerators_per_node')}x{value.get('accelerator')}"
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
    source = f", from {found.sources[question.key]}" if here is not None and found.sources[question.key] != here else ""
    proposed = f" [{default}{source}]" if default else ""
    while True:
        text = click.prompt(f"{question.text}{question.typed}{proposed}", default=default, show_default=False, err=True)
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
