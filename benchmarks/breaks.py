"""How many deliberate breaks `dsgen validate` finds: `python -m benchmarks.breaks ROOT [--number
100] [--seed 0] [--across 0]`.

ROOT has checkouts of public repositories. Each break is a slip that people make, drawn at random in
a file that works and made without a look at the rules: in names, brackets, types, numbers, paths,
options, lines. One that breaks nothing is not drawn (`breaks_something`): DeepSpeed's own parser,
which has to be installed, and bash say so where they can. `dsgen validate .` is run with it, and
what it says anew is compared with the place: `found` is an error there (of a deleted file a warning
is right, as it may be made before the launch), `mild` a warning or note, `elsewhere` an error in
another place that doesn't name this one. Whether the run would really fail is then judged by
reading: VERDICTS has a row for each break that was judged harmless, which doesn't count. `--show`
prints each break that was not found.

`--launches` draws only breaks of who starts what where (LAUNCHES), each kind about as often.

`--across 0.5` draws half of the breaks across files and calls, which are counted apart: those that
only another file shows (ACROSS), and those in a launch that was moved, before the break, into a
file that its script sources or calls (`_moved`).
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks import people_slips, pod_breaks
from benchmarks.people_slips import RANKS, Change, Changes, Condition, given_by_a_launch
from dsgen.check.engine import parse, quiet, read

Kinds = Mapping[str, tuple[Changes, Condition | None]]


def _none(lines: list[str], rng: random.Random) -> Iterator[Change]:
    """No change: those of pods are made of the whole file."""
    return iter(())


#: By kind of file, each kind of break: how it is made and when it breaks a run, else by
#: `breaks_something`.
KINDS: Final[Mapping[str, Kinds]] = {
    "config": people_slips.CONFIG,
    "script": people_slips.SCRIPT,
    "accelerate": people_slips.ACCELERATE,
    "pods": {slip.kind: (_none, None) for slip in pod_breaks.SLIPS},
}
# repo, path, line, kind, why it does no harm
VERDICTS: Final = Path(__file__).with_name("data") / "breaks.csv"
# a value of a template, which sed fills in
_TO_FILL: Final = re.compile(r"(:\s*)[A-Z][A-Z0-9]*_?[A-Za-z0-9_]+\b")
# lines between a break and where it is seen: a missing comma is seen at the next key
_NEAR: Final = 2
_CONFIG: Final = re.compile(r'"(?:zero_optimization|train_micro_batch_size_per_gpu)"')
_LAUNCH: Final = re.compile(
    r"^[^#\n]*\b(?:torchrun|deepspeed|accelerate launch|torch\.distributed\.\w+|srun)\b",
    re.MULTILINE,
)
_ACCELERATE: Final = re.compile(r"^distributed_type:", re.MULTILINE)
#: Breaks that contradict another line, which may be named as well; and those that only the end of
#: the file shows.
_OF_TWO_PLACES: Final = (
    "other batch",
    "other number of GPUs",
    "other stage of the launch",
    "bracket dropped",
    "file deleted",  # a variable has its name, and is used elsewhere
    *(slip.kind for slip in pod_breaks.SLIPS),
    *people_slips.OF_TWO_PLACES,
)
#: Breaks that only another file shows, by kind of file.
ACROSS: Final = (
    ("config", "number beside the Trainer's"),
    ("config", "auto without the Trainer"),
    ("script", "file deleted"),
    ("script", "program's option with a slip"),
    ("script", "path with a slip"),
    ("script", "folder with a slip"),
    ("script", "other ending"),
    ("script", "argument beside the config's"),
    ("script", "both precisions"),
    ("script", "called script with a slip"),
    ("script", "fewer GPUs than a called script starts"),
    ("accelerate", "path with a slip"),
)
#: Breaks of a launch that is moved into a file of its own.
MOVED: Final = (
    "launcher option with a slip",
    "blank after backslash",
    "other number of GPUs",
    "other stage of the launch",
    "option of another launcher",
    "option of the launch gone",
    "line commented out",
    "long dash",
    "one dash",
    "value gone",
    "size that doesn't divide",
    "tasks a node",
    "fewer devices",
    "dollar lost",
    "scheduler's variable with a slip",
    "every node the first",
    "this host for all",
    "number of an option gone",
    "other number in arithmetic",
    "other number in a variable",
    "fewer GPUs asked for",
    "other number of nodes",
)
#: Breaks of who starts what where: of counts, names of variables, places, calls, mounts.
LAUNCHES: Final = (
    *(name for name in MOVED if name not in ("blank after backslash", "long dash", "one dash")),
    *(name for _, name in ACROSS if name != "program's option with a slip"),
    "end of a block gone",
    "quote gone",
    "assignment gone",
    "mount gone",
    *(slip.kind for slip in pod_breaks.SLIPS),
)
_INNER: Final = "moved_launch.sh"
_TRIES_FOR_A_PLACE: Final = 16
_MOST: Final = 60_000  # characters of a file
_BATCH: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)
_SCRIPTS: Final = (".sh", ".sbatch", ".slurm")
_NAMING: Final = (
    *_SCRIPTS,
    ".py",
    ".yaml",
    ".yml",
    ".json",
    ".toml",
)  # no prose, which nothing runs
_MOST_TRIES: Final = 20  # changes of a kind in a file, of which one has to break something
#: What a script says of the GPUs of a node beside the ranks that it starts there.
_GPUS: Final = r"^#SBATCH.*(?:--gpus-per-node|--gres|-G)[= ]?(?:gpu:)?(?:\w+:)?(\d+)\b"

#: Where the nodes of a launch meet, which isn't each one's own address.
_MEETING: Final = (
    r"--(?:master[-_]addr|rdzv[-_]endpoint|main_process_ip|hostfile)[= ]\s*"
    r"[\"']?(?!127\.|localhost)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A line of a file that becomes another; of a deleted file the line that names it."""

    repo: str
    path: str
    line: int  #: from 1
    kind: str
    before: str
    after: str
    deleted: str = ""  #: the file that goes
    across: bool = False  #: whether another file, or a call, has a part in it
    #: texts of files that are written before the break: of a launch that is moved, by path
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Its key in the table of verdicts."""
        return self.repo, self.path, str(self.line), self.kind


def breaks_something(repo: Path, path: Path, kind: str, lines: list[str], change: Change) -> bool:
    """Tell whether a change makes a difference, as far as the file or its repository shows it."""
    number, new, was = change
    before, after = "\n".join(lines), "\n".join([*lines[:number], new, *lines[number + 1 :]])
    if kind == "other batch":
        return _is_impossible_batch(after)
    if path.suffix == ".json":
        return _changes_config(before, after)
    if path.suffix in (".yaml", ".yml") and kind.startswith("wrong"):
        return not given_by_a_launch(repo, path, new)
    if kind == "path with a slip":
        return _named_a_file(repo, lines[number], was)
    if kind == "sbatch option with a slip":  # sbatch reads none after the first command
        return new.startswith("#SBATCH") and number < _first_command(lines)
    if kind == "other number of GPUs":
        asked_for = {int(gpus) for gpus in re.findall(_GPUS, before, re.MULTILINE)}
        ranks = [int(ranks) for ranks in re.findall(rf"{RANKS}(\d+)", new)]
        return any(rank > gpus for rank in ranks for gpus in asked_for)
    if kind == "other stage of the launch":
        return _cannot_meet(lines, number)
    if kind == "program's option with a slip":
        return _calls_a_program(repo, before) and _words(after) != _words(before)
    if path.suffix in _SCRIPTS:
        old, words = _words(before) or "", _words(after)
        # A line end in quotes is a blank more.
        in_quotes = kind == "backslash dropped" and f"{lines[number]}\n" in old
        return words is None or (words != old and not in_quotes)
    return True


def _is_impossible_batch(config: str) -> bool:
    """Tell whether no number of ranks makes the batch sizes of a config right."""
    total, micro_batch, steps = (
        int(size)
        for key in _BATCH
        for size in re.findall(rf'"{key}"\s*:\s*(\d+)', config)[:1] or ["0"]
    )
    return bool(total and micro_batch and total % (micro_batch * (steps or 1)))


def _changes_config(before: str, after: str) -> bool:
    """Tell whether DeepSpeed, or the Trainer that fills a config in, reads another config."""
    before, after = (_TO_FILL.sub(r"\g<1>1", text) for text in (before, after))
    # The Trainer, which fills in `auto`, reads JSON; DeepSpeed reads HJSON.
    strict = '"auto"' in before
    old, new = _read(before, strict=strict), _read(after, strict=strict)
    if None in (old, new) or old == new:
        return bool(old != new)
    state = _state(before, before)
    return state is None or _state(after, before) != state


def _named_a_file(repo: Path, line: str, stem: str) -> bool:
    """Tell whether a path of a line with this stem is a file's, by its name and its folder's."""
    paths = [Path(text) for text in re.findall(r"[\w./-]+", line)]
    return any(
        path.parent.name in (there.parent.name, "")
        for path in paths
        if path.stem == stem
        for there in repo.rglob(path.name)
    )


def _first_command(lines: list[str]) -> int:
    """The number of the first line that is neither blank nor a comment."""
    commands = (n for n, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    return next(commands, len(lines))


def _cannot_meet(lines: list[str], number: int) -> bool:
    """Tell whether the nodes of the launch at a line can't meet, or Slurm gives other ones."""
    continued = [line.rstrip().endswith("\\") for line in lines]
    start, end = number, number
    while start and continued[start - 1]:
        start -= 1
    while end < len(lines) and continued[end]:
        end += 1
    meets = re.search(_MEETING, "\n".join(lines[start : end + 1]))
    nodes = re.search(r"^#SBATCH\s+(?:--nodes|-N)[= ]?\d+", "\n".join(lines), re.MULTILINE)
    return not meets or bool(nodes)


def _calls_a_program(repo: Path, script: str) -> bool:
    """Tell whether a script calls a program of its repository."""
    programs = re.findall(r"([\w.-]+\.py)\b", script)
    return any(path.is_file() for name in programs for path in repo.rglob(name))


def _read(text: str, *, strict: bool) -> Any:
    """The data of a config; None where it can't be read."""
    try:
        return read(text, strict=strict)
    except Exception:  # whatever json, hjson or DeepSpeed raise
        return None


def _state(text: str, original: str) -> str | None:
    """What DeepSpeed's own parser makes of a config, on as many ranks as `original` is for; None
    where it refuses it.

    One with values for the Trainer to fill in is read as it reads it, from strict JSON; the others
    as HJSON.
    """
    try:
        with quiet():
            first = read(original, strict=False)
            config = read(text, strict='"auto"' in original)
            sizes = [first.get(key) for key in _BATCH]
            total, micro, steps = (size if isinstance(size, int) else None for size in sizes)
            config = {key: value for key, value in config.items() if value != "auto"}
            if not config.keys() & set(_BATCH[:2]) and "auto" in sizes:
                config[_BATCH[1]] = 1
            state = vars(parse(config, total // (micro * (steps or 1)) if total and micro else 8))
    except Exception:  # whatever DeepSpeed raises
        return None
    state.pop("_param_dict")  # as it was written
    return json.dumps(
        state, default=lambda one: getattr(one, "__dict__", type(one).__name__), sort_keys=True
    )


def _words(script: str) -> str | None:
    """A script as bash reads it, without running it; None where it can't."""
    asked = ["bash", "--pretty-print", "/dev/stdin"]
    done = subprocess.run(asked, input=script, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def drawn(
    root: Path, number: int, seed: int, across: float = 0, only: Sequence[str] = ()
) -> Iterator[Break]:
    """Breaks of every kind in turn, or of some, in files of repositories in turn.

    A share `across` of them are across files and calls.
    """
    rng = random.Random(seed)
    found: dict[str, list[tuple[Path, Path]]] = defaultdict(list)
    for repo in sorted(path for path in root.iterdir() if "+" in path.name):
        for path in sorted(repo.rglob("*")):
            if path.is_file() and ".git" not in path.parts and (kind := _kind(path)):
                found[kind].append((repo, path))
    tables = KINDS
    kinds = [(kind, name) for kind, table in tables.items() for name in table if found[kind]]
    kinds += [("script", "file deleted")] * bool(found["script"])
    apart = [pair for pair in ACROSS if found[pair[0]]]
    apart += [(_INNER, name) for name in MOVED] * bool(found["script"])
    kinds, apart = ([pair for pair in of if not only or pair[1] in only] for of in (kinds, apart))
    made, used, tries = 0, set[tuple[Path, str]](), 0
    weight = defaultdict[tuple[str, str], float](float)
    while made < number and (tries := tries + 1) < 200 * number:
        of = apart if across and int((made + 1) * across) > int(made * across) else kinds
        if only:  # what was drawn, or found no place, least often
            least = min(weight[pair] for pair in of)
            kind, name = rng.choice([one for one in of if weight[one] == least])
            weight[kind, name] += 1 / _TRIES_FOR_A_PLACE
        else:
            kind, name = of[made % len(of)] if tries % 50 and not across else rng.choice(of)
        pair = kind, name
        moves, kind = kind == _INNER, "script" if kind == _INNER else kind
        of_repo = rng.choice(sorted({repo for repo, _ in found[kind]}))
        repo, path = rng.choice([pair for pair in found[kind] if pair[0] == of_repo])
        if (path, name) in used or (kind in ("config", "accelerate") and not is_used(repo, path)):
            continue
        used.add((path, name))
        how, when = tables[kind].get(name, (None, None))
        one = _made(repo, path, name, how, when, rng)
        if one is not None and moves:
            one = _moved(repo, path, one, rng)
        if one is not None:
            made += 1
            weight[pair] += 1
            yield replace(one, across=of is apart)


@cache
def is_used(repo: Path, path: Path) -> bool:
    """Return whether another file of a repository has a file's name, and none writes it: else it
    breaks no run.
    """
    others = (
        one for one in repo.rglob("*") if one.suffix in _NAMING and one != path and one.is_file()
    )
    # `bf16_zero2.json` is another than `zero2.json`
    whole = re.compile(rf"(?<![\w.-]){re.escape(path.name)}")
    texts = [text for one in others if whole.search(text := people_slips.code_of(one))]
    return bool(texts) and not any(_writes(text, path.name) for text in texts)


def _writes(script: str, name: str) -> bool:
    """Return whether a script writes a file of this name, so that the one on disk is never read."""
    variables = re.findall(
        rf"^\s*(?:(?:export|readonly|local|declare)\s+)?(\w+)=\S*{re.escape(name)}",
        script,
        re.MULTILINE,
    )
    names = "|".join((re.escape(name), *(rf"\$\{{?{one}\b" for one in variables)))
    return bool(re.search(rf">\s*[\"']?(?:[\w./-]*/)?(?:{names})", script))


def _kind(path: Path) -> str | None:
    if (
        path.suffix not in (".json", ".sh", ".sbatch", ".slurm", ".yaml", ".yml")
        or path.stat().st_size > _MOST
    ):
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    signs = {
        "config": (_CONFIG, (".json",)),
        "script": (_LAUNCH, _SCRIPTS),
        "accelerate": (_ACCELERATE, (".yaml", ".yml")),
        "pods": (pod_breaks.KIND, (".yaml", ".yml")),
    }
    return next(
        (kind for kind, (sign, ends) in signs.items() if path.suffix in ends and sign.search(text)),
        None,
    )


def _made(
    repo: Path,
    path: Path,
    kind: str,
    how: Changes | None,
    when: Condition | None,
    rng: random.Random,
) -> Break | None:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    if path.suffix in _SCRIPTS and _words("\n".join(lines)) is None:
        return None  # bash refuses it as it is
    place: dict[str, Any] = {
        "repo": repo.name.replace("+", "/", 1),
        "path": path.relative_to(repo).as_posix(),
        "kind": kind,
    }
    if _kind(path) == "pods":
        of_pods = next((one for one in pod_breaks.breaks_of(path) if one.kind == kind), None)
        after = of_pods.text.split("\n")[of_pods.line - 1] if of_pods else ""
        return of_pods and Break(
            **place, line=of_pods.line, before=lines[of_pods.line - 1], after=after
        )
    if how is not None:
        changes = islice(how(lines, rng), _MOST_TRIES)
        breaks = when or (
            lambda repo, path, lines, one: breaks_something(repo, path, kind, lines, one)
        )
        change = next((one for one in changes if breaks(repo, path, lines, one)), None)
        return change and Break(
            **place, line=change[0] + 1, before=lines[change[0]], after=change[1]
        )
    for number, line in enumerate(lines):
        for name in (
            re.findall(r"(?<![\w$}/.-])[\w.-][\w./-]*\.(?:json|yaml|py|sh)\b", line)
            if not line.lstrip().startswith("#")
            else ()
        ):
            gone = next(
                (base / name for base in (path.parent, repo) if (base / name).is_file()), None
            )
            only = sum(1 for _ in repo.rglob(Path(name).name)) == 1  # else another may be meant
            if gone is not None and only and (_kind(gone) or gone.suffix in (".py", ".sh")):
                return Break(
                    **place,
                    line=number + 1,
                    before=line,
                    after=line,
                    deleted=str(gone.relative_to(repo)),
                )
    return None


def _moved(repo: Path, path: Path, one: Break, rng: random.Random) -> Break | None:
    """The break in a script of which the launch is moved into a file beside it, which the script
    sources, or calls with all its variables exported.

    None where the launch isn't a command of the script's own level that can be moved whole.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    inside = sorted(people_slips.launched(lines))
    if not inside:
        return None
    first = next((n for n in inside if n == one.line - 1), inside[0])
    while first > 0 and lines[first - 1].rstrip().endswith("\\"):
        first -= 1
    last = first
    while last + 1 < len(lines) and lines[last].rstrip().endswith("\\"):
        last += 1
    launch = lines[first : last + 1]
    inner = path.with_name(_INNER)
    if (
        not re.match(r"[A-Za-z\"$]", launch[0])
        or inner.exists()
        or _words("\n".join(launch)) is None
    ):
        return None

    # An array isn't exported, nor are a shell's arguments; what a called script sets is lost.
    whole = "\n".join(launch)
    by_srun = re.match(
        r"(srun\s(?:[^\n\"']*?\s)?)((?:torchrun|deepspeed|accelerate launch|python3?)\s.*)",
        launch[0],
    )
    stays = re.search(r"\[@\]|\$[@*#1-9]|\$\{[@*#1-9]|\A(?:export\s+)?\w+=", whole)
    calls = rng.random() < 0.5 and not stays
    start = f"bash {_INNER}" if calls else f"source ./{_INNER}"
    if by_srun and not stays:
        if one.line - 1 == first and not one.after.startswith(by_srun[1]):
            return None  # the break is in what stays
        calls, start = True, f"{by_srun[1]}bash {_INNER}"
        if one.line - 1 == first:
            one = replace(one, after=one.after.removeprefix(by_srun[1]))
        launch = [by_srun[2], *launch[1:]]
    at_start = min(_first_command(lines), first)  # below the directives
    outer = [*lines[:first], start, *lines[last + 1 :]]
    if calls:
        outer.insert(at_start, "set -a")
    texts = {
        path.relative_to(repo).as_posix(): "\n".join(outer),
        inner.relative_to(repo).as_posix(): "\n".join(["#!/bin/bash", *launch, ""]),
    }
    changed = one.line - 1
    if first <= changed <= last:
        place = inner.relative_to(repo).as_posix(), changed - first + 2
    else:
        added = calls and changed >= at_start
        place = one.path, changed + 1 + added - (last - first if changed > last else 0)
    return replace(one, path=place[0], line=place[1], moved=texts)


def say(repo: Path) -> Counter[tuple[Any, ...]]:
    """What is said of a repository: severity, file, line, rule and message, each place by
    itself.
    """
    command = [sys.executable, "-I", "-m", "dsgen", "validate", ".", "--strict", "--format", "json"]
    answer = subprocess.run(command, cwd=repo, capture_output=True, check=False, text=True)
    findings = json.loads(answer.stdout)["findings"]
    return Counter(
        (f["severity"], Path(f["path"]).as_posix(), f["line"], f["rule"], f["message"])
        for f in findings
    )


def tried(
    root: Path, one: Break, before: Counter[tuple[Any, ...]]
) -> tuple[str, list[tuple[Any, ...]]]:
    """The answer to a break, and all that is said anew."""
    repo = root / one.repo.replace("/", "+", 1)
    if one.moved:
        return _tried_moved(repo, one)
    path = repo / (one.deleted or one.path)
    text = path.read_bytes()
    try:
        if one.deleted:
            path.unlink()
        else:
            lines = text.decode("utf-8", errors="replace").split("\n")
            path.write_text(
                "\n".join([*lines[: one.line - 1], one.after, *lines[one.line :]]), encoding="utf-8"
            )
        new = sorted((say(repo) - before).elements(), key=str)
    finally:
        path.write_bytes(text)
    return _verdict(one, new), new


def _tried_moved(repo: Path, one: Break) -> tuple[str, list[tuple[Any, ...]]]:
    """The same of a break in a launch that is moved into another file before."""
    old = {path: (repo / path).read_bytes() for path in one.moved if (repo / path).exists()}
    try:
        for path, text in one.moved.items():
            (repo / path).write_text(text, encoding="utf-8")
        before = say(repo)
        lines = one.moved[one.path].split("\n")
        broken = [*lines[: one.line - 1], one.after, *lines[one.line :]]
        (repo / one.path).write_text("\n".join(broken), encoding="utf-8")
        new = sorted((say(repo) - before).elements(), key=str)
    finally:
        for path in one.moved:
            if path in old:
                (repo / path).write_bytes(old[path])
            else:
                (repo / path).unlink(missing_ok=True)
    return _verdict(one, new), new


def _verdict(one: Break, new: list[tuple[Any, ...]]) -> str:
    """What the findings that are new say of a break."""
    anywhere = one.kind in _OF_TWO_PLACES
    paths = {one.path, *(one.moved if anywhere else ())}  # a launch that is moved is one place
    here = [
        f
        for f in new
        if f[1] in paths and (anywhere or f[2] is None or abs(f[2] - one.line) <= _NEAR)
    ]
    mild = ("warning",) if one.deleted or one.kind in people_slips.WARNED else ()
    if any(f[0] in ("error", *mild) or one.kind in people_slips.NOTED for f in here):
        return "found"
    if any(f[0] == "error" for f in new):
        named = f"{one.path}:{one.line}"  # by a finding in another file, which contradicts it
        if anywhere and any(
            f[0] == "error" and re.search(rf"(?<![\w/]){re.escape(named)}(?!\d)", f[4]) for f in new
        ):
            return "found"
        return "elsewhere"
    return "mild" if here else "missed"


def harmless() -> set[tuple[str, str, str, str]]:
    """The breaks after which the run still does what is written."""
    if not VERDICTS.is_file():
        return set()
    with VERDICTS.open(encoding="utf-8", newline="") as file:
        return {
            (row["repo"], row["path"], row["line"], row["kind"]) for row in csv.DictReader(file)
        }


def main() -> int:
    """Print the answers by kind, and with `--show` each break that was not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.breaks")
    parser.add_argument("root", type=Path)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--across", type=float, default=0, metavar="SHARE")
    parser.add_argument("--launches", action="store_true", help="only breaks of LAUNCHES")
    parser.add_argument("--show", nargs="?", const="missed", choices=("missed", "all"))
    asked = parser.parse_args()
    known, before = harmless(), dict[str, Counter[tuple[Any, ...]]]()
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    apart = Counter[str]()
    only = LAUNCHES if asked.launches else ()
    for one in drawn(asked.root, asked.number, asked.seed, asked.across, only):
        if one.repo not in before:
            before[one.repo] = say(asked.root / one.repo.replace("/", "+", 1))
        verdict, new = tried(asked.root, one, before[one.repo])
        verdict = "harmless" if verdict != "found" and one.key in known else verdict
        answers[one.kind][verdict] += 1
        apart[verdict] += one.across
        if asked.show and (verdict not in ("found", "harmless") or asked.show == "all"):
            apart_mark = " across" if one.across else ""
            print(
                f"{verdict}{apart_mark}: {one.kind}: {one.repo} {one.path}:{one.line} {one.deleted}"
            )
            print(f"  - {one.before}", f"  + {one.after}", sep="\n")
            print(*(f"    {f}" for f in new[:6]), sep="\n", flush=True)
    columns = ("found", "mild", "elsewhere", "missed", "harmless")
    print(f"\n| break | {' | '.join(columns)} |", "|---|" + "---|" * len(columns), sep="\n")
    for kind, counts in sorted(answers.items()):
        print(f"| {kind} | {' | '.join(str(counts[column]) for column in columns)} |")
    total = sum(answers.values(), Counter[str]())
    harmful = total.total() - total["harmless"]
    print(f"\n{total['found']} of {harmful} breaks found, {total['harmless']} harmless")
    if asked.across:
        harmful_apart = apart.total() - apart["harmless"]
        print(f"of them across files and calls: {apart['found']} of {harmful_apart}")
    return int(total["found"] < 0.95 * harmful)


if __name__ == "__main__":
    sys.exit(main())
