"""Specs that `dsgen init --from` makes of existing launches: `python -m benchmarks.adopted
PATH...`.

Each file is read into a spec, the spec is planned and its files are written; then every key of the
file's DeepSpeed config and every option of its training program is looked for in the new files. It
is equal there; or equivalent: a default that is left out, an "auto" that got a number, the same
under its newer name; or the spec names it as dropped. What is none of these is a silent loss. A
PATH is a file, or a folder whose files are taken one by one; `--list` prints every loss, `--specs
FOLDER` keeps the specs. The comparison is made from the files' own text, without what made the
spec. Exits with 1 where anything is lost or fails.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dsgen
from dsgen.draft import Draft, Outcome, carry_over, draft_run, find_runs, spec_text
from dsgen.programs.deepspeed.schema import load_schema
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.programs.megatron.options import option_table
from dsgen.programs.trainer.training_arguments import known_arguments
from dsgen.submission.launches import Launch

_KEYS: Final = load_schema("0.19.8")
_CONFIG_NAME: Final = re.compile(r"[\w./-]*\.(?:json|yaml|yml)\b")
#: What a job needs beside its files, where they don't say it.
ANSWERS: Final[Mapping[str, object]] = {
    "model": "qwen2.5-0.5b",
    "cluster": "azure/standard_nd96isr_h100_v5",
    "gpus": 8,
    "training.global_batch": 64,
}
EQUAL, EQUIVALENT, DROPPED, LOST = "equal", "equivalent", "dropped", "lost"
_SUFFIXES: Final = (".json", ".hjson", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml")
#: Options by which a program is told of its DeepSpeed config, which has another name now.
_CONFIGS: Final = frozenset({"--deepspeed", "--deepspeed_config", "--deepspeed-config"})
#: Keys whose values DeepSpeed moves, and where to.
_MOVED: Final = {
    "zero_optimization.cpu_offload": "zero_optimization.offload_optimizer.device",
    "zero_optimization.cpu_offload_param": "zero_optimization.offload_param.device",
    "zero_optimization.gather_16bit_weights_on_model_save": (
        "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    ),
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": (
        "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    ),
}
#: Keys that "auto" may leave out: what is off, and the batch that DeepSpeed multiplies itself.
_FILLED: Final = frozenset({"fp16.enabled", "bf16.enabled", "train_batch_size"})
#: Options that say the same in other words.
_OTHER_WORDS: Final = {
    "--recompute-activations": "--recompute-granularity",
    "--num-layers-per-virtual-pipeline-stage": "--num-virtual-stages-per-pipeline-rank",
    "--use-flash-attn": "--attention-backend",
    "--encoder-num-layers": "--num-layers",
    "--encoder-seq-length": "--seq-length",
    "--use-rotary-position-embeddings": "--position-embedding-type",
    "--checkpoint-activations": "--recompute-granularity",
    "--use-flash-attn-v1": "--use-flash-attn-v2",
}


_OLD_RECOMPUTE: Final = ("--activations-checkpoint-method", "--activations-checkpoint-num-layers")


@dataclass(slots=True, kw_only=True)
class Check:
    """Outcome of one file."""

    path: Path
    kind: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)
    losses: list[str] = field(default_factory=list)
    planned: bool = False
    fits: bool = False
    problem: str = ""
    seconds: float = 0.0
    text: str = ""


def check(path: Path) -> Check:
    """One file, from its text to its new files."""
    result, started = Check(path=path), time.perf_counter()
    try:
        _reading, runs = find_runs([path, *beside(path)])
        if not runs or not _counts(runs[0]):
            return result
        result.kind = _kind(runs[0])
        adopted = draft_run(runs[0], runs[1:])
        needed = {key: ANSWERS[key] for key in _missing(adopted) if key != "training.global_batch"}
        needed.update(_machines(adopted.spec.get("gpus"), needed))
        adopted = draft_run(runs[0], runs[1:], needed)
        adopted = draft_run(
            runs[0], runs[1:], needed | {key: ANSWERS[key] for key in _missing(adopted)}
        )
        outcome = carry_over(adopted)
        _judge(result, adopted, outcome)
    except Exception as problem:
        result.kind, result.problem = result.kind or "?", f"{type(problem).__name__}: {problem}"
    result.seconds = time.perf_counter() - started
    return result


def _missing(draft: Draft) -> list[str]:
    """What a job needs and nobody said: model, cluster, gpus, global batch."""
    lacks = [key for key in ("model", "cluster", "training.global_batch") if draft.get(key) is None]
    return [*lacks, *(["gpus"] if draft.get("gpus") is None and draft.get("nodes") is None else [])]


def beside(path: Path) -> list[Path]:
    """The configs that a script names, from its folder or one of those above it."""
    if path.suffix in (".json", ".hjson"):
        return []
    names = {
        name.lstrip("./")
        for name in _CONFIG_NAME.findall(path.read_text("utf-8", errors="replace"))
    }
    places = [path.parent, *list(path.parents)[1:4]]
    return [
        found for name in sorted(names) for place in places if (found := place / name).is_file()
    ][:5]


def _machines(gpus: object, needed: Mapping[str, object]) -> dict[str, object]:
    """Nodes that a number of GPUs fills."""
    if "cluster" not in needed or not isinstance(gpus, int) or gpus <= 8 or gpus % 8 == 0:
        return {}
    each = next(size for size in range(8, 0, -1) if gpus % size == 0)
    node = {
        "accelerator": "h100-80gb-sxm",
        "accelerators_per_node": each,
        "network_gbits_per_s_per_node": 200,
    }
    return {"cluster": node}


def _counts(run: Any) -> bool:
    """Return whether it is a launch of Megatron's, or has a DeepSpeed config."""
    return run.megatron is not None or run.config is not None


def _kind(run: Any) -> str:
    if run.megatron is None:
        return "DeepSpeed launch" if run.launch is not None else "DeepSpeed config"
    return f"{run.megatron.run.flavour} script"


def _judge(result: Check, draft: Draft, outcome: Outcome) -> None:
    result.planned, result.fits = outcome.plan is not None, outcome.infeasible is None
    result.text = spec_text(
        draft.spec, comments=draft.comments, tail=map(str, draft.left), from_files=True
    )
    if outcome.plan is None:
        result.problem = "; ".join(
            f"{one.rule} {one.message}" for one in outcome.findings if one.severity == "error"
        )
        return
    spec = result.path.with_name(f".{result.path.name}.dsgen-adopted.yaml")
    job = dsgen.load_job(_stream(result.text, spec))
    answer = dsgen.search(job, top=1)
    plan = answer.plans[0] if isinstance(answer, dsgen.SearchResult) else dsgen.estimate(job)
    files = {file.path: file.text for file in dsgen.render(plan)}
    dropped = [note.what for note in draft.left]
    if draft.found.config is not None:
        own = draft.found.config.json.data
        new = json.loads(files.get("ds_config.json", "{}"))
        for name, value in _leaves(own):
            _count(result, name, _config_verdict(name, value, new, dropped))
    launch = draft.found.launch
    if launch is not None:
        words = (
            FRAMEWORKS[str(draft.spec.get("framework", "megatron-deepspeed"))]
            .program(plan)
            .arguments
        )
        flavour = draft.found.megatron.run.flavour if draft.found.megatron else None
        given = _options([word if isinstance(word, str) else word.name for word in words])
        for name, values in _launched(launch, flavour):
            _count(
                result,
                " ".join((name, *values)),
                _option_verdict(name, values, given, dropped, flavour),
            )


def _stream(text: str, path: Path) -> Any:
    import io

    stream = io.StringIO(text)
    stream.name = str(path)
    return stream


def _count(result: Check, what: str, verdict: str) -> None:
    result.verdicts[verdict] += 1
    if verdict == LOST:
        result.losses.append(what)


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{at}.{key}" if at else str(key))
    else:
        yield at, value


def _config_verdict(name: str, value: Any, new: Any, dropped: Iterable[str]) -> str:
    name = _MOVED.get(name, name.replace("bfloat16.", "bf16."))
    held: Any = new
    for part in name.split("."):
        held = held.get(part, LOST) if isinstance(held, dict) else LOST
    if held == value or (held != LOST and _text(held) == _text(value)):
        return EQUAL
    if value == "auto" and (held != LOST or name in _FILLED):
        return EQUIVALENT
    if name == "zero_optimization.overlap_comm" and held == LOST:
        return EQUIVALENT if value == (new["zero_optimization"]["stage"] == 3) else LOST
    if name == "zero_optimization" and isinstance(value, bool):
        return EQUIVALENT if new["zero_optimization"]["stage"] == int(value) else LOST
    if name.endswith(".device") and (
        (held == "cpu" and value is True) or (held == LOST and value in (False, "none"))
    ):
        return EQUIVALENT
    if any(
        text.partition(":")[0] == name or name.startswith(f"{text.partition(':')[0]}.")
        for text in dropped
    ):
        return DROPPED
    key = _KEYS.key("/" + name.replace(".", "/"))
    section, _, last = name.rpartition(".")
    if key is not None and key.written != last:
        return _config_verdict(
            f"{section}.{key.written}" if section else key.written, value, new, dropped
        )
    if section == "optimizer.params":
        known = _KEYS.optimizers.get(str(new.get("optimizer", {}).get("type")).lower()) or {}
        key = known.get(last)
    if name == "sequence_parallel_size" and value == 1 and held == LOST:
        return EQUIVALENT
    if held == LOST and key is not None and _text(key.default) == _text(value):
        return EQUIVALENT
    return EQUIVALENT if held == LOST and value in ({}, None) else LOST


def _text(value: Any) -> str:
    if isinstance(value, bool) or value in ("true", "false", "True", "False"):
        return str(value).lower()
    try:
        return str(float(value))
    except (TypeError, ValueError):
        return str(value)


def _options(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("-") and not word[1:2].isdigit():
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        else:
            found.setdefault(name, []).append(word)
    return {name: tuple(values) for name, values in found.items()}


def _launched(launch: Launch, flavour: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The options of the old launch line; what isn't known, as it is written.

    The last of an option counts.
    """
    words = [word.value if word.value is not None else word.raw for word in launch.arguments]
    yield from _options(words).items()


def _option_verdict(
    name: str,
    values: tuple[str, ...],
    new: Mapping[str, tuple[str, ...]],
    dropped: list[str],
    flavour: Any,
) -> str:
    table = option_table(flavour) if flavour else None
    option = table.get(name) if table else None
    names = {
        name,
        option.name if option else name,
        name.replace("-", "_").replace("__", "--", 1),
        "--" + name[2:].replace("_", "-"),
    }
    held = next((new[one] for one in names if one in new), None)
    if name in _CONFIGS:
        return EQUIVALENT
    if held is not None and [*map(_word, held or ("true",))] == [*map(_word, values or ("true",))]:
        return EQUAL
    shown = " ".join((name, *values)).strip()
    named = any(
        text in (shown, name) or text.startswith((f"{name} ", f"{name}=")) for text in dropped
    )
    if named or any(value in dropped for value in values if "$" in value or "{" in value):
        return DROPPED
    if not name and all(
        word in dropped or any(word in text for text in dropped) for word in values
    ):
        return DROPPED
    if held is None and (
        _OTHER_WORDS.get(name) in new or _OTHER_WORDS.get(option.name if option else name) in new
    ):
        return EQUIVALENT
    if (
        held is None
        and name in _OLD_RECOMPUTE
        and {"--checkpoint-activations", "--recompute-granularity"} & set(new)
    ):
        return EQUIVALENT
    default = (
        option.default
        if option
        else known_arguments().get(name[2:].replace("-", "_"), {}).get("default")
    )
    if (
        held is None
        and default is not None
        and [_word(str(default))] == [*map(_word, values or ("true",))]
    ):
        return EQUIVALENT
    if held is not None and values and all(value in dropped for value in values[len(held) :]):
        return DROPPED if [*map(_word, held)] == [*map(_word, values[: len(held)])] else LOST
    if held is None and values == ("1",) and (name.endswith("-size") or name == "--num-experts"):
        return EQUIVALENT
    return LOST


def _word(text: str) -> str:
    plain = text.lower()
    return (
        "true" if plain in ("true", "yes") else "false" if plain in ("false", "no") else _text(text)
    )


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """The files at the paths that may be launches, by name."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in inside if one.is_file() and one.suffix in _SUFFIXES)


def main() -> int:
    """Print the table; status 1 where anything is lost or fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--list", action="store_true", help="print every loss")
    parser.add_argument("--specs", type=Path, help="folder to keep the specs in")
    asked = parser.parse_args()
    checks = [one for one in map(check, files_in(asked.paths)) if one.kind]
    for number, one in enumerate(checks):
        if asked.specs and one.text:
            asked.specs.mkdir(parents=True, exist_ok=True)
            (asked.specs / f"{number:04}_{one.path.stem}.yaml").write_text(
                f"# {one.path}\n{one.text}", encoding="utf-8"
            )
        for loss in one.losses if asked.list else ():
            print(f"{one.path}: lost: {loss}")
        if one.problem:
            print(f"{one.path}: {one.problem}")
    print(table(checks))
    return int(any(one.losses or one.problem for one in checks))


def table(checks: list[Check]) -> str:
    """The counts by kind of file, as Markdown."""
    head = (
        "| kind | files | planned | fit | keys and options | equal | equivalent | named as "
        "dropped | lost | failed |"
    )
    lines = [head, "|---|" + "---:|" * 9]
    for kind in sorted({one.kind for one in checks}):
        own = [one for one in checks if one.kind == kind]
        sums: Counter[str] = Counter()
        for one in own:
            sums.update(one.verdicts)
        cells = [
            len(own),
            sum(one.planned for one in own),
            sum(one.fits for one in own),
            sum(sums.values()),
        ]
        cells += [sums[verdict] for verdict in (EQUAL, EQUIVALENT, DROPPED, LOST)]
        lines.append(
            f"| {kind} | {' | '.join(map(str, [*cells, sum(bool(one.problem) for one in own)]))} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
