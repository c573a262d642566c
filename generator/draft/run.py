"""Draft the spec of an existing run, with the user's answers, and write the spec as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final

from ..findings import Location
from ..job.arguments import grouped
from ..job.schema import launch_keys
from ..patterns import lazy_pattern
from ..programs.azureml.job import AzureMLJob
from ..secrets import Hider
from .bridge import bridge_run, read_bridge
from .draft import Draft
from .find import ExistingRun
from .front_ends import read_front_end, reserve_share
from .machines import read_machines
from .megatron import read_megatron
from .scripts import read_config, read_script

_USUAL_GPUS_PER_NODE: Final = 8  #: where no file says it


def draft_run(
    run: ExistingRun,
    others: Sequence[ExistingRun] = (),
    answers: Mapping[str, object] | None = None,
) -> Draft:
    """The spec of a run as its files say it; `answers`, by dotted path, replace what they say."""
    texts = run.submission.texts
    ours = {path for path, text in texts.items() if "# Written by dsgen " in text.content[:4096]}
    # Not AzureML jobs: only the service has the values of their expressions, so they are named.
    of_service = {job.path for job in run.submission.of(AzureMLJob)}
    draft = Draft(
        found=run,
        ours=frozenset(ours - of_service),
        hide=Hider(value for text in texts.values() for value in text.secret_values),
    )
    overrides = bridge_run(run)
    if run.megatron is not None:
        read_megatron(draft, run.megatron)
    elif overrides is not None:
        read_bridge(draft, overrides)
    else:
        read_script(draft)
    if run.config is not None:
        read_config(draft, run.config)
    read_front_end(draft)
    read_machines(draft)
    if run.where.path not in ours:
        for other in others:
            if (other.where, other.program) == (run.where, run.program):
                continue  # the same line, on another way through the scripts
            why = "another run: for its spec, give init its files alone"
            draft.leave(other.program, other.where, why)
    _take_answers(draft, answers or {})
    reserve_share(draft)
    _complete(draft, run.where)
    _add_hostfile(draft)
    return draft


def _take_answers(draft: Draft, answers: Mapping[str, object]) -> None:
    """Set the user's answers, in place of what the files say."""
    for path, value in answers.items():
        if path in ("gpus", "nodes"):  # one of them is enough
            draft.spec.pop("gpus", None)
            draft.spec.pop("nodes", None)
        if path == "launch.target" and draft.get(path) not in (None, value):
            draft.spec["launch"].pop(str(draft.get(path)), None)  # options of the other target
        draft.set(path, value)


def _add_hostfile(draft: Draft) -> None:
    """Name a hostfile for a job on several nodes without a scheduler."""
    target, nodes, gpus = str(draft.get("launch.target")), draft.get("nodes"), draft.get("gpus")
    per_node = draft.get("cluster.accelerators_per_node") or _USUAL_GPUS_PER_NODE
    has_several = (isinstance(nodes, int) and nodes > 1) or (
        isinstance(gpus, int) and gpus > per_node
    )
    if has_several and "hostfile" in launch_keys(target) and not draft.get(f"launch.{target}"):
        draft.set(f"launch.{target}.hostfile", "hostfile")
        draft.comments[f"launch.{target}.hostfile"] = (
            "to be written: a line `HOST slots=GPUS` for each node"
        )


def _unfit(batch: int, replicas: int, micro: int | None, steps: int | None) -> tuple[str, ...]:
    """The fewest pins that have to go, so that a batch can be divided among the replicas."""
    pinned_steps = ("gradient_accumulation",) if steps else ()
    pinned_micro = ("micro_batch",) if micro else ()
    if micro and steps and micro * steps * replicas == batch:
        return ()
    if micro and batch % (micro * replicas) == 0:
        return pinned_steps
    if steps and batch % (steps * replicas) == 0:
        return pinned_micro
    return (*pinned_steps, *pinned_micro)


def _is_no_count(value: object) -> bool:
    """Return whether there is a value, and it is no whole number above zero."""
    return value is not None and not (type(value) is int and value > 0)


def _complete(draft: Draft, where: Location) -> None:
    """Add what follows from the layout: the GPUs of a batch, or the batch of the GPUs.

    Nothing is added where one of the numbers is no count: reading the spec refuses it.
    """
    layout: dict[str, Any] = draft.spec.get("layout", {})
    micro, steps = layout.get("micro_batch"), layout.get("gradient_accumulation")
    batch, gpus = draft.get("training.global_batch"), draft.get("gpus")
    degrees = [layout.get(name) for name in ("tensor", "pipeline", "context")]
    if any(map(_is_no_count, (*degrees, micro, steps, batch, gpus))):
        return
    ranks = prod(degree or 1 for degree in degrees)
    replicas = gpus // ranks if isinstance(gpus, int) and gpus % ranks == 0 else None
    if isinstance(batch, int) and replicas and batch % replicas == 0:
        for name in _unfit(batch, replicas, micro, steps):
            why = f"a batch of {batch} on {gpus} GPUs has another; left open"
            draft.leave(f"{name} {layout.pop(name)}", where, why)
    if batch is None and replicas is not None and micro:
        draft.set("training.global_batch", micro * (steps or 1) * replicas)
    has_machines = gpus is not None or draft.get("nodes") is not None
    if not has_machines and batch and micro and steps and batch % (micro * steps) == 0:
        draft.set("gpus", batch // (micro * steps) * ranks)
        times_ranks = f" × {ranks}" if ranks > 1 else ""
        draft.comments["gpus"] = f"of the batch: {batch} / ({micro} × {steps}){times_ranks}"


#: Text that needs no quotes: no word of YAML's, no number, nothing that begins or ends something.
_PLAIN: Final = lazy_pattern(r"(?:--?)?[A-Za-z_/.][\w./@+%=-]*(?::[\w./@+%=-]+)*", re.ASCII)
_WORDS: Final = frozenset(
    {"y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf", "~"}
)
_NUMBER: Final = lazy_pattern(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?")
_WIDTH: Final = 110  # of a spec's lines
_MOST_IN_LINE: Final = 3  # keys of a mapping that is written in one line
ORDER: Final = (
    "name",
    "framework",
    "deepspeed_version",
    "megatron_version",
    "megatron_bridge_version",
    "transformers_version",
    "model",
    "cluster",
    "gpus",
    "nodes",
    "calibration",
    "training",
    "data",
    "output",
    "layout",
    "deepspeed_config",
    "memory",
    "launch",
)
#: The order of keys below `launch`; any other key, such as the target's own, has `_OTHERS`.
_OF_LAUNCH: Final = {"target": 0, "script": 1, "time_limit": 2, "environment": 4, "arguments": 5}
_OTHERS: Final = 3
#: Comments above keys of a spec made of files.
_ABOVE: Final[Mapping[str, str]] = {
    "layout": "pinned as the files have it: remove a key to let dsgen choose it",
    "deepspeed_config": "merged into the DeepSpeed config that dsgen writes; null leaves a key out",
    "launch.arguments": "the script's own, before those that dsgen adds",
}


def spec_text(
    spec: Mapping[str, Any],
    *,
    head: Iterable[str] = (),
    comments: Mapping[str, str] | None = None,
    tail: Iterable[str] = (),
    from_files: bool = False,
) -> str:
    """The text of a spec: comments above it, beside values by dotted path, and below."""
    beside = dict(comments or {})
    lines = [_comment(line) for line in head]
    for key in sorted(spec, key=lambda key: ORDER.index(key) if key in ORDER else len(ORDER)):
        value = spec[key]
        if isinstance(value, Mapping) and key == "launch":
            names = sorted(value, key=lambda name: _OF_LAUNCH.get(name, _OTHERS))
            value = {name: value[name] for name in names}
        lines += _lines(key, value, 0, key, beside, from_files)
    below = [_comment(line) for line in tail]
    if below:
        lines += ["", *below]
    return "\n".join(lines) + "\n"


def _comment(line: str) -> str:
    text = "".join(char if char.isprintable() else " " for char in line)
    return f"# {text}".rstrip()


def _lines(
    key: str, value: Any, depth: int, path: str, beside: Mapping[str, str], from_files: bool
) -> Iterator[str]:
    """A key and its value, a mapping below it or in one line."""
    pad, note = "  " * depth, f"  {_comment(beside[path])}" if path in beside else ""
    if from_files and path in _ABOVE:
        yield f"{pad}# {_ABOVE[path]}"
    name = _scalar(key)
    if isinstance(value, Mapping) and value and not _is_short(value, path, beside):
        yield f"{pad}{name}:{note}"
        for inner, item in value.items():
            yield from _lines(inner, item, depth + 1, f"{path}.{inner}", beside, from_files)
    elif path == "launch.arguments":
        yield f"{pad}{name}:"
        yield f"{pad}  ["
        for words in grouped(value):
            # Numbers keep their form without quotes.
            items = (word if _NUMBER.fullmatch(word) else _scalar(word) for word in words)
            yield f"{pad}    {', '.join(items)},"
        yield f"{pad}  ]"
    else:
        yield f"{pad}{name}: {_flow(value)}{note}"


def _is_short(value: Mapping[str, Any], path: str, beside: Mapping[str, str]) -> bool:
    """Tell whether a mapping is written in one line."""
    is_at_top = "." not in path
    is_nested = any(isinstance(item, Mapping) for item in value.values())
    has_comments = any(name.startswith(f"{path}.") for name in beside)
    if is_at_top or is_nested or has_comments:
        return False
    return len(value) <= _MOST_IN_LINE and len(_flow(value)) < _WIDTH // 2


def _flow(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, Mapping):
        items = ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items())
        return f"{{{items}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A text, number or truth as YAML has it."""
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if is_plain else json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < 1e15  # which a float holds exactly
        return str(int(value)) if is_whole else repr(value)
    return json.dumps(value)
