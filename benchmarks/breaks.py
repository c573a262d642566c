"""How many deliberate breaks `dsgen validate` finds: `python -m benchmarks.breaks ROOT [--number 100] [--seed 0]`.

ROOT has checkouts of public repositories. Each break is a slip that people make, drawn at random in a file that works
and made without a look at the rules: in names, brackets, types, numbers, paths, options, lines. One that breaks nothing
is not drawn (`breaks_something`): DeepSpeed's own parser, which has to be installed, and bash say so where they can.
`dsgen validate .` is run with it, and what it says anew is compared with the place: `found` is an error there (of a
deleted file a warning is right, as it may be made before the launch), `mild` a warning or note, `elsewhere` an error in
another place that doesn't name this one. Whether the run would really fail is then judged by reading: VERDICTS has a
row for each break that was judged harmless, which doesn't count. `--show` prints each break that was not found.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks import people_slips
from benchmarks.people_slips import LAUNCH_LINE, Change, Changes, Condition
from dsgen.check.engine import parse, quiet, read

Kinds = Mapping[str, tuple[Changes, Condition | None]]

VERDICTS: Final = Path(__file__).with_name("data") / "breaks.csv"  # repo, path, line, kind, why it does no harm
_NEAR: Final = 2  # lines between a break and where it is seen: a missing comma is seen at the next key
_CONFIG: Final = re.compile(r'"(?:zero_optimization|train_micro_batch_size_per_gpu)"')
_LAUNCH: Final = re.compile(
    r"^[^#\n]*\b(?:torchrun|deepspeed|accelerate launch|torch\.distributed\.\w+|srun)\b", re.MULTILINE
)
_ACCELERATE: Final = re.compile(r"^distributed_type:", re.MULTILINE)
#: Breaks that contradict another line, which may be named as well; and those that only the end of the file shows.
_OF_TWO_PLACES: Final = (
    *("other batch", "other number of GPUs", "other stage of the launch", "bracket dropped"),
    "file deleted",  # a variable has its name, and is used elsewhere
    *people_slips.OF_TWO_PLACES,
)
_MOST: Final = 60_000  # characters of a file
_BATCH: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_SCRIPTS: Final = (".sh", ".sbatch", ".slurm")
_NAMING: Final = (*_SCRIPTS, ".py", ".yaml", ".yml", ".json", ".toml")  # no prose, which nothing runs
_MOST_TRIES: Final = 20  # changes of a kind in a file, of which one has to break something


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

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Its key in the table of verdicts."""
        return self.repo, self.path, str(self.line), self.kind


def slip(word: str, rng: random.Random) -> str:
    """A name with two letters exchanged, or one left out or written twice."""
    at = rng.randrange(1, max(len(word) - 1, 2))
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    return rng.choice(
        [one for one in (swapped, word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]) if one != word]
    )


def replaced(
    pattern: str, how: Callable[[re.Match[str], random.Random], str | None]
) -> Callable[..., Iterator[Change]]:
    """A kind of break: one match of a pattern in a line becomes something else."""

    def changes(lines: list[str], rng: random.Random) -> Iterator[Change]:
        places = [
            (n, match)
            for n, line in enumerate(lines)
            for match in re.finditer(pattern, line)
            if not line.lstrip().startswith("#") or "SBATCH" in line
        ]
        rng.shuffle(places)
        for number, match in places:
            new = how(match, rng)
            line = lines[number]
            if new is not None and new != match[0]:
                yield number, line[: match.start()] + new + line[match.end() :], match[0]

    return changes


def of_launch(changes: Callable[..., Iterator[Change]]) -> Callable[..., Iterator[Change]]:
    """The same within commands that launch training, over all of their lines."""

    def some(lines: list[str], rng: random.Random) -> Iterator[Change]:
        inside, within = set[int](), False
        for number, line in enumerate(lines):
            within = within or (bool(LAUNCH_LINE.search(line)) and not line.lstrip().startswith(("#", "echo")))
            if within:
                inside.add(number)
            within = within and line.rstrip().endswith("\\")
        yield from (change for change in changes(lines, rng) if change[0] in inside)

    return some


#: The launchers' options of one meaning, in torchrun's, DeepSpeed's and accelerate's words.
_SAME: Final = (
    ("nproc[-_]per[-_]node", "num_gpus", "num_processes"),
    ("nnodes", "num_nodes", "num_machines"),
    ("node[-_]rank", "machine_rank"),
    ("master[-_]addr", "main_process_ip"),
    ("master[-_]port", "main_process_port"),
)
_ELSEWHERE: Final = {  # a key of DeepSpeed's, and the same in the Trainer's or PyTorch's words
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "gradient_clipping": "max_grad_norm",
    "lr": "learning_rate",
    "weight_decay": "wd",
}


_RANKS: Final = r"(?:--nproc[-_]per[-_]node|--num_gpus)[= ]"
#: What a script says of the GPUs of a node beside the ranks that it starts there.
_GPUS: Final = r"^#SBATCH.*(?:--gpus-per-node|--gres|-G)[= ]?(?:gpu:)?(?:\w+:)?(\d+)\b"

#: Where the nodes of a launch meet, which isn't each one's own address.
_MEETING: Final = r"--(?:master[-_]addr|rdzv[-_]endpoint|main_process_ip|hostfile)[= ]\s*[\"']?(?!127\.|localhost)"


def _of_another_launcher(name: str, rng: random.Random) -> str:
    same = next(same for same in _SAME if any(re.fullmatch(one, name) for one in same))
    return rng.choice([one.replace("[-_]", "_") for one in same if not re.fullmatch(one, name)])


def _other_number(match: re.Match[str], rng: random.Random) -> str:
    return match[1] + str(int(match[2]) * 2 if rng.random() < 0.5 else int(match[2]) + 1)


CONFIG: Final[Mapping[str, Callable[..., Iterator[Change]]]] = {
    "key with a slip": replaced(r'"(\w{5,})"(?=\s*:)', lambda m, r: f'"{slip(m[1], r)}"'),
    "comma dropped": replaced(r",(?=\s*$)", lambda m, r: ""),
    "bracket dropped": replaced(r"[}\]](?=,?\s*$)", lambda m, r: ""),
    "quote dropped": replaced(r'"(?=\s*:)', lambda m, r: ""),
    "wrong type": replaced(  # "yes" is true to DeepSpeed's models
        r"(?<=:)\s*(?:true|false|\d+)(?=\s*,?\s*$)",
        lambda m, r: r.choice([" [1]", " {}", *([' "yes"'] if m[0].strip().isdigit() else [])]),
    ),
    "wrong choice": replaced(
        r'(?<="stage":)\s*[0-3]|(?<="device":)\s*"\w+"|(?<="type":)\s*"\w+"',
        lambda m, r: " 4" if m[0].strip().isdigit() else f' "{slip(m[0].strip().strip(chr(34)), r)}"',
    ),
    "other batch": replaced(r'("train_(?:micro_)?batch_size\w*"\s*:\s*)(\d+)', _other_number),
    "key of another program": replaced(
        r'"(?:train_micro_batch_size_per_gpu|gradient_accumulation_steps|gradient_clipping|lr|weight_decay)"(?=\s*:)',
        lambda m, r: f'"{_ELSEWHERE[m[0][1:-1]]}"',
    ),
}
SCRIPT: Final[Mapping[str, Callable[..., Iterator[Change]]]] = {
    "launcher option with a slip": of_launch(
        replaced(
            r"--(nproc[-_]per[-_]node|nnodes|master[-_]port|num_gpus|num_processes|config_file|num_machines|machine_rank|include|hostfile)\b",
            lambda m, r: f"--{slip(m[1], r)}",
        )
    ),
    "program's option with a slip": of_launch(
        replaced(r"(?<=\s)--([a-z]{3,}[_-][a-z_-]{3,})\b", lambda m, r: f"--{slip(m[1], r)}")
    ),
    "path with a slip": of_launch(
        replaced(r"(?<=[\s=/])([\w-]{4,})(?=\.(?:json|yaml|yml|py)\b)", lambda m, r: slip(m[1], r))
    ),
    "backslash dropped": of_launch(replaced(r"\s*\\$", lambda m, r: "")),
    "blank after backslash": of_launch(replaced(r"\\$", lambda m, r: "\\ ")),
    "sbatch option with a slip": replaced(r"(?<=#SBATCH --)([a-z-]{4,})(?==)", lambda m, r: slip(m[1], r)),
    "other number of GPUs": replaced(rf"({_RANKS})(\d+)\b", _other_number),
    "other stage of the launch": of_launch(replaced(r"(--nnodes[= ])(\d+)\b", _other_number)),
    "option of another launcher": of_launch(
        replaced(rf"--({'|'.join(map('|'.join, _SAME))})\b", lambda m, r: f"--{_of_another_launcher(m[1], r)}")
    ),
}
ACCELERATE: Final[Mapping[str, Callable[..., Iterator[Change]]]] = {
    "key with a slip": replaced(r"^\s*(\w{6,})(?=:)", lambda m, r: m[0].replace(m[1], slip(m[1], r))),
    "wrong choice": replaced(r"(?<=distributed_type: )(\w+)|(?<=mixed_precision: )(\w+)", lambda m, r: slip(m[0], r)),
    "wrong type": replaced(r"(?<=num_processes: )\d+|(?<=num_machines: )\d+", lambda m, r: "many"),
    "path with a slip": replaced(r"(?<=[\s=/])([\w-]{4,})(?=\.json\b)", lambda m, r: slip(m[1], r)),
}


def breaks_something(repo: Path, path: Path, kind: str, lines: list[str], change: Change) -> bool:
    """Return whether a change makes a difference that the file, or its repository, is enough to know."""
    number, new, was = change
    before, after = "\n".join(lines), "\n".join([*lines[:number], new, *lines[number + 1 :]])
    if kind == "other batch":  # that no number of ranks makes right
        total, *sizes = (
            int(size) for key in _BATCH for size in re.findall(rf'"{key}"\s*:\s*(\d+)', after)[:1] or ["0"]
        )
        return bool(total and sizes[0] and total % (sizes[0] * (sizes[1] or 1)))
    if path.suffix == ".json":
        strict = '"auto"' in before  # for the Trainer to fill in, which reads JSON; DeepSpeed reads HJSON
        old, config = _read(before, strict=strict), _read(after, strict=strict)
        if None in (old, config) or old == config:
            return old != config
        state = _state(before, before)
        return state is None or _state(after, before) != state
    if path.suffix in (".yaml", ".yml") and kind == "wrong type":  # which an option of the launch replaces
        option = f"--{new.partition(':')[0].strip()}"
        scripts = (
            one.read_text(encoding="utf-8", errors="replace") for one in repo.rglob("*") if one.suffix in _SCRIPTS
        )
        return not any(path.name in text and option in text for text in scripts)
    if kind == "path with a slip":  # of a file that is there: by its name and its folder's
        paths = [Path(one) for one in re.findall(r"[\w./-]+", lines[number]) if Path(one).stem == was]
        return any(one.parent.name in (there.parent.name, "") for one in paths for there in repo.rglob(one.name))
    if kind == "sbatch option with a slip":  # sbatch reads none after the first command
        first = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
        return new.startswith("#SBATCH") and number < first
    if kind == "other number of GPUs":
        asked = {int(gpus) for gpus in re.findall(_GPUS, before, re.MULTILINE)}
        return any(int(ranks) > gpus for ranks in re.findall(rf"{_RANKS}(\d+)", new) for gpus in asked)
    if kind == "other stage of the launch":  # nodes that Slurm doesn't give, or that can't meet
        end = next((n for n in range(number, len(lines)) if not lines[n].rstrip().endswith("\\")), len(lines))
        start = next(n for n in range(number, -1, -1) if not n or not lines[n - 1].rstrip().endswith("\\"))
        meets = re.search(_MEETING, "\n".join(lines[start : end + 1]))
        return not meets or bool(re.search(r"^#SBATCH\s+(?:--nodes|-N)[= ]?\d+", before, re.MULTILINE))
    if path.suffix in _SCRIPTS:
        return (words := _words(after)) is None or words != _words(before)
    return True


def _read(text: str, *, strict: bool) -> Any:
    """The data of a config; None where it can't be read."""
    try:
        return read(text, strict=strict)
    except Exception:  # whatever json, hjson or DeepSpeed raise
        return None


def _state(text: str, original: str) -> str | None:
    """What DeepSpeed's own parser makes of a config, on as many ranks as `original` is for; None where it refuses it.

    One with values for the Trainer to fill in is read as it reads it, from strict JSON; the others as HJSON.
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
    return json.dumps(state, default=lambda one: getattr(one, "__dict__", type(one).__name__), sort_keys=True)


def _words(script: str) -> str | None:
    """A script as bash reads it, without running it; None where it can't."""
    asked = ["bash", "--pretty-print", "/dev/stdin"]
    done = subprocess.run(asked, input=script, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def drawn(root: Path, number: int, seed: int) -> Iterator[Break]:
    """Breaks of every kind in turn, in files of repositories in turn."""
    rng = random.Random(seed)
    found: dict[str, list[tuple[Path, Path]]] = defaultdict(list)
    for repo in sorted(path for path in root.iterdir() if "+" in path.name):
        for path in sorted(repo.rglob("*")):
            if path.is_file() and ".git" not in path.parts and (kind := _kind(path)):
                found[kind].append((repo, path))
    tables = all_kinds()
    kinds = [(kind, name) for kind, table in tables.items() for name in table if found[kind]]
    kinds += [("script", "file deleted")] * bool(found["script"])
    made, used, tries = 0, set[tuple[Path, str]](), 0
    while made < number and (tries := tries + 1) < 200 * number:
        kind, name = kinds[made % len(kinds)] if tries % 50 else rng.choice(kinds)
        of_repo = rng.choice(sorted({repo for repo, _ in found[kind]}))
        repo, path = rng.choice([pair for pair in found[kind] if pair[0] == of_repo])
        if (path, name) in used or (kind != "script" and not is_used(repo, path)):
            continue
        used.add((path, name))
        how, when = tables[kind].get(name, (None, None))
        one = _made(repo, path, name, how, when, rng)
        if one is not None:
            made += 1
            yield one


def all_kinds() -> Mapping[str, Kinds]:
    """By kind of file, each kind of break: how it is made and when it breaks a run, else by `breaks_something`."""
    old = {"config": CONFIG, "script": SCRIPT, "accelerate": ACCELERATE}
    new = {"config": people_slips.CONFIG, "script": people_slips.SCRIPT, "accelerate": people_slips.ACCELERATE}
    return {kind: {**{name: (how, None) for name, how in old[kind].items()}, **new[kind]} for kind in old}


@cache
def is_used(repo: Path, path: Path) -> bool:
    """Return whether another file of a repository has a file's name: what nothing names breaks no run."""
    others = (one for one in repo.rglob("*") if one.suffix in _NAMING and one != path and one.is_file())
    return any(path.name in one.read_text(encoding="utf-8", errors="replace") for one in others)


def _kind(path: Path) -> str | None:
    if path.suffix not in (".json", ".sh", ".sbatch", ".slurm", ".yaml", ".yml") or path.stat().st_size > _MOST:
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    signs = {
        "config": (_CONFIG, (".json",)),
        "script": (_LAUNCH, _SCRIPTS),
        "accelerate": (_ACCELERATE, (".yaml", ".yml")),
    }
    return next((kind for kind, (sign, ends) in signs.items() if path.suffix in ends and sign.search(text)), None)


def _made(
    repo: Path, path: Path, kind: str, how: Changes | None, when: Condition | None, rng: random.Random
) -> Break | None:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    place = {"repo": repo.name.replace("+", "/", 1), "path": path.relative_to(repo).as_posix(), "kind": kind}
    if how is not None:
        changes = islice(how(lines, rng), _MOST_TRIES)
        breaks = when or (lambda repo, path, lines, one: breaks_something(repo, path, kind, lines, one))
        change = next((one for one in changes if breaks(repo, path, lines, one)), None)
        return change and Break(**place, line=change[0] + 1, before=lines[change[0]], after=change[1])
    for number, line in enumerate(lines):
        for name in re.findall(r"[\w./-]+\.(?:json|yaml)\b", line) if not line.lstrip().startswith("#") else ():
            gone = next((base / name for base in (path.parent, repo) if (base / name).is_file()), None)
            only = sum(1 for _ in repo.rglob(Path(name).name)) == 1  # else another may be meant
            if gone is not None and only and _kind(gone):
                return Break(**place, line=number + 1, before=line, after=line, deleted=str(gone.relative_to(repo)))
    return None


def say(repo: Path) -> Counter[tuple[Any, ...]]:
    """What is said of a repository: severity, file, line, rule and message, each place by itself."""
    command = [sys.executable, "-I", "-m", "dsgen", "validate", ".", "--strict", "--format", "json"]
    answer = subprocess.run(command, cwd=repo, capture_output=True, check=False, text=True)
    findings = json.loads(answer.stdout)["findings"]
    return Counter((f["severity"], Path(f["path"]).as_posix(), f["line"], f["rule"], f["message"]) for f in findings)


def tried(root: Path, one: Break, before: Counter[tuple[Any, ...]]) -> tuple[str, list[tuple[Any, ...]]]:
    """The answer to a break, and all that is said anew."""
    repo = root / one.repo.replace("/", "+", 1)
    path = repo / (one.deleted or one.path)
    text = path.read_bytes()
    try:
        if one.deleted:
            path.unlink()
        else:
            lines = text.decode("utf-8", errors="replace").split("\n")
            path.write_text("\n".join([*lines[: one.line - 1], one.after, *lines[one.line :]]), encoding="utf-8")
        new = sorted((say(repo) - before).elements(), key=str)
    finally:
        path.write_bytes(text)
    anywhere = one.kind in _OF_TWO_PLACES
    here = [f for f in new if f[1] == one.path and (anywhere or f[2] is None or abs(f[2] - one.line) <= _NEAR)]
    mild = ("warning",) if one.deleted or one.kind in people_slips.WARNED else ()
    if any(f[0] in ("error", *mild) or one.kind in people_slips.NOTED for f in here):
        return "found", new
    if any(f[0] == "error" for f in new):
        named = f"{one.path}:{one.line}"  # by a finding in another file, which contradicts it
        if anywhere and any(f[0] == "error" and re.search(rf"(?<![\w/]){re.escape(named)}(?!\d)", f[4]) for f in new):
            return "found", new
        return "elsewhere", new
    return ("mild" if here else "missed"), new


def harmless() -> set[tuple[str, str, str, str]]:
    """The breaks after which the run still does what is written."""
    if not VERDICTS.is_file():
        return set()
    with VERDICTS.open(encoding="utf-8", newline="") as file:
        return {(row["repo"], row["path"], row["line"], row["kind"]) for row in csv.DictReader(file)}


def main() -> int:
    """Print the answers by kind, and with `--show` each break that was not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.breaks")
    parser.add_argument("root", type=Path)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    known, before = harmless(), dict[str, Counter[tuple[Any, ...]]]()
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for one in drawn(asked.root, asked.number, asked.seed):
        if one.repo not in before:
            before[one.repo] = say(asked.root / one.repo.replace("/", "+", 1))
        verdict, new = tried(asked.root, one, before[one.repo])
        verdict = "harmless" if verdict != "found" and one.key in known else verdict
        answers[one.kind][verdict] += 1
        if asked.show and verdict not in ("found", "harmless"):
            print(f"{verdict}: {one.kind}: {one.repo} {one.path}:{one.line} {one.deleted}")
            print(f"  - {one.before}", f"  + {one.after}", sep="\n")
            print(*(f"    {f}" for f in new[:6]), sep="\n", flush=True)
    columns = ("found", "mild", "elsewhere", "missed", "harmless")
    print(f"\n| break | {' | '.join(columns)} |", "|---|" + "---|" * len(columns), sep="\n")
    for kind, counts in sorted(answers.items()):
        print(f"| {kind} | {' | '.join(str(counts[column]) for column in columns)} |")
    total = sum(answers.values(), Counter[str]())
    harmful = total.total() - total["harmless"]
    print(f"\n{total['found']} of {harmful} breaks found, {total['harmless']} harmless")
    return int(total["found"] < 0.95 * harmful)


if __name__ == "__main__":
    sys.exit(main())
