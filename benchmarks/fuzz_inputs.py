"""Inputs for `benchmarks.fuzz`: the project's own documents, damaged, with other sizes in them, or
made very long.

Each with a command that reads it; and words that nobody expects, as flags and arguments of every
command.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dsgen.cli.options import COMMANDS
from tests.case import NAMES, read_case
from tests.secrets.samples import VARIABLES

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("examples", "tests/golden", "tests/programs/ds_configs", "tests/invalid")
MODELS: Final = ROOT / "tests/job/configs"
LOGS: Final = ROOT / "tests/programs/logs"
SUFFIXES: Final = frozenset(
    {".json", ".hjson", ".yaml", ".yml", ".sh", ".sbatch", ".slurm", ".txt", ""}
)
MOST: Final = 1_000_000  #: characters of the longest inputs

#: Text that readers stumble over: quotes, brackets, expansions, numbers out of range, characters
#: out of place.
_PIECES: Final = (
    *"\"'`$\\{}[]()<>|&;#:=,.-+*?!~@%^\t\n ",
    "\r\n",
    "\0",
    "\x1b[31m",
    "\ufeff",
    "\u2028",
    "\x85",
    "é",
    "😀",
    "\ud800",
    "'''",
    "/*",
    "*/",
    "//",
    "\\\n",
    "null",
    "true",
    "auto",
    "NaN",
    "-1",
    "1e400",
    "9" * 400,
    "0x",
    "1_000",
    "007",
    ".5",
    "[]",
    "{}",
    '""',
    "~",
    *(
        "$(",
        "${",
        "$((",
        "))",
        "${A:-${B:-",
        "<<EOF\n",
        "<<'EOF'\n",
        "EOF\n",
        "\n#SBATCH ",
        " --",
        "&a ",
        "*a",
    ),
    "<<: *a",
    "if ",
    "fi\n",
    "for x in ",
    "do\n",
    "done\n",
    "case x in ",
    "esac\n",
    "function f {",
    "export ",
    "A=$A$A\n",
    "- ",
    "a: ",
    "a,",
    "{a: ",
    '{"a":',
    "[[",
    "x" * 50,
    "srun ",
    "torchrun a.py --num-layers 2\n",
)
#: Blanks, digits that are not ASCII's, numbers beyond what `int` reads, and what a CI runner takes
#: for a command.
PIECES: Final = (
    *_PIECES,
    " " * 3000,
    "\t" * 3000,
    "\n" * 3000,
    " \t" * 500,
    "\u00a0",
    "\u3000" * 100,
    "²",
    "٣",
    "१२",
    "１６",
    "8²",
    "-٣",
    "${A[²]}",
    "²e³",
    "Ⅷ",
    "9" * 4301,
    "0" * 5000,
    "1_" * 3000 + "1",
    "::stop-commands::evil",
    "\n::stop-commands::evil\n",
    "\n   ::add-mask::x",
    "::set-output name=a::b",
    *(
        "##vso[task.setvariable variable=a]b",
        "##[error]x",
        "\r##vso[task.complete]",
        "::error file=a::b",
    ),
)
#: Numbers at the ends of types, primes, numbers with many divisors, and what is no number.
SIZES: Final = (
    "0",
    "-1",
    "1",
    "7",
    "1.5",
    "-0.0",
    "1e308",
    "-1e308",
    "1e-320",
    "nan",
    ".inf",
    "inf",
    "true",
    "null",
    "65536",
    "65537",
    "786432",
    "1048576",
    "735134400",
    "1000000000",
    "2147483647",
    "2147483648",
    "4294967296",
    "999999999989",
    "963761198400",
    "1000000000000",
    "999999999999999989",
    "897612484786617600",
    "1000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "9" * 30,
    "9" * 4301,
    "²",
    "٣٢",
    "１６",
    "8²",
    "0" * 5000 + "8",
)
#: Secrets whose names or forms show them wherever they are.
SECRETS: Final = tuple(
    (name, value) for name, value in VARIABLES.items() if len(value) > 8 and "\n" not in value
)
_BRACKETS: Final = (
    ("[", "]"),
    ("{a: ", "}"),
    ('{"a":', "}"),
    ("$(", ")"),
    ("(", ")"),
    ("${a:-", "}"),
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
_TABLE: Final = (
    "name,step_time_s,gpus,tensor,pipeline,micro_batch,global_batch,recompute,peak_memory_gib\n"
    + "".join(f"run {n},{2.5 + n},{64 * n},{n},1,1,512,full,61.4\n" for n in (1, 2, 4))
)
_CALIBRATION: Final = (
    '{"version": 1, "accelerator": "nvidia/h100-sxm", "network": "infiniband", '
    '"framework": "megatron-lm", '
    '"factors": {"compute": 1.1}, "spread": 0.05, "runs": [{"name": "a", "measured_s": 2.5}]}'
)
_JOB: Final = "examples/llama-3.1-8b-long-context.yaml"
_FLAGS: Final = ("--gpus", "--global-batch", "--sequence-length", "--nodes", "--top")
_PLACES: Final = (
    "layout.tensor",
    "layout.pipeline",
    "layout.micro_batch",
    "layout.data",
    "layout.context",
    "layout.expert",
    "training.global_batch",
    "training.tokens",
    "training.sequence_length",
    "training.learning_rate",
    "gpus",
    "cluster.nodes",
    "model.num_hidden_layers",
    "model.hidden_size",
    "model.num_attention_heads",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """An input on disk: a command line, and what it may open and must not show."""

    origin: str  #: what it is made of, and how
    start: Path  #: the folder that the command runs in
    arguments: tuple[str, ...]
    bytes: int
    secrets: frozenset[str] = frozenset()
    #: paths below which files may be opened; anywhere where it is empty
    inside: tuple[str, ...] = ()
    beside: Callable[[], object] = lambda: None  #: a state that the command must not change


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A document, and the command that reads it."""

    origin: str
    name: str
    text: str
    arguments: tuple[str, ...]


def documents() -> list[Known]:
    """The project's own documents, in a fixed order."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    found = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    for case in map(read_case, NAMES):
        for part, files in (("bad", case.bad), ("good", case.good)):
            found |= {
                f"tests/cases/{case.name}/{part}/{path}": content for path, content in files.items()
            }
    kept = sorted((path, raw) for path, raw in found.items() if Path(path).suffix in SUFFIXES)
    texts = [(path, raw.decode(errors="replace")) for path, raw in kept]
    return [
        Known(origin=o, name=Path(o).name, text=t, arguments=("validate", Path(o).name))
        for o, t in texts
    ]


def read_by_others() -> list[Known]:
    """Specs, models, measured runs and calibration files, with the commands that read them."""
    specs = sorted((ROOT / "examples").glob("*.yaml"))
    found = [
        Known(
            origin=f"{verb} {path.name}",
            name="job.yaml",
            text=path.read_text(),
            arguments=(verb, "job.yaml"),
        )
        for path in specs
        for verb in ("plan", "estimate", "generate")
    ]
    plan = ("plan", str(ROOT / _JOB), "--framework", "megatron-lm")
    for path in sorted(MODELS.glob("*.json")):
        arguments = (*plan, "--model", "config.json")
        found.append(
            Known(origin=path.name, name="config.json", text=path.read_text(), arguments=arguments)
        )
    arguments = (*plan, "--calibration", "calibration.json")
    found.append(
        Known(origin="calibration", name="calibration.json", text=_CALIBRATION, arguments=arguments)
    )
    texts = {"runs.csv": _TABLE} | {
        path.name: path.read_text(errors="replace") for path in sorted(LOGS.glob("*.log"))
    }
    for name, text in texts.items():
        fit = ("calibrate", name, "--job", str(ROOT / _JOB), "--force")
        found.append(Known(origin=f"calibrate {name}", name=name, text=text, arguments=fit))
    return found


def damaged(text: str, rng: random.Random) -> str:
    """`text` after one to eight cuts, copies, insertions, swaps of lines or changes of single
    characters.
    """
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((1, 3, 10, 100)))
        piece = rng.choice(PIECES)
        match rng.randrange(7):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + piece + text[start:]
            case 2:
                text = text[:start] + piece + text[end:]
            case 3:
                text = text[:end] + text[start:end] * rng.choice((1, 2, 50)) + text[end:]
            case 4:
                lines = text.split("\n")
                rng.shuffle(lines) if len(lines) < 50 else lines.reverse()
                text = "\n".join(lines)
            case 5:
                text = text[:start]
            case _:
                text = text[:start] + chr(rng.randrange(1, 0x3000)) + text[end:]
    return text


def resized(text: str, rng: random.Random) -> str:
    """`text` with other numbers in one to five places."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        numbers = [*_NUMBER.finditer(text)]
        if not numbers:
            break
        place = rng.choice(numbers)
        text = text[: place.start()] + size(rng) + text[place.end() :]
    return text


def size(rng: random.Random) -> str:
    """A number that nobody expects, up to 10^18 or so."""
    return (
        rng.choice(SIZES)
        if rng.random() < 0.6
        else str(rng.randrange(1, 10 ** rng.randrange(1, 19)))
    )


def lengthened(text: str, rng: random.Random) -> str:
    """`text` with a character, a piece, a line or itself repeated, up to `MOST` characters."""
    length = int(1000 ** rng.uniform(1, 2))
    start = rng.randrange(len(text) + 1)
    lines = text.splitlines(keepends=True) or ["\n"]
    match rng.randrange(6):
        case 0:
            piece = rng.choice(PIECES)
            return text[:start] + piece * (length // len(piece)) + text[start:]
        case 1:
            first = rng.randrange(len(lines))
            block = "".join(lines[first : first + rng.choice((1, 1, 2, 5, 20))])
            return "".join(lines[:first]) + block * (length // len(block)) + "".join(lines[first:])
        case 2:
            return text * max(length // max(len(text), 1), 1)
        case 3:
            end = min(len(text), start + rng.choice((1, 2, 5, 10, 50)))
            return text[:end] + text[start:end] * (length // max(end - start, 1)) + text[end:]
        case 4:
            first = rng.randrange(len(lines))
            numbered = "".join(
                f"a{n}{lines[first]}" for n in range(length // (len(lines[first]) + 4))
            )
            return "".join(lines[:first]) + numbered + "".join(lines[first:])
        case _:
            opening, closing = rng.choice(_BRACKETS)
            count = length // (len(opening) + 1)
            return text[:start] + opening * count + closing * rng.choice((0, count)) + text[start:]


_MADE: Final[tuple[Callable[[str, random.Random], str], ...]] = (damaged, resized, lengthened)


@cache
def known_documents() -> tuple[list[Known], list[Known]]:
    """What is validated, and what other commands read."""
    return documents(), read_by_others()


def lay_out(seed: int, number: int, folder: Path) -> Laid:
    """Make the input of a number in `folder`: documents alone or by threes, what other commands
    read, or flags.
    """
    rng = random.Random(f"{seed}/{number}")
    known, others = known_documents()
    chance = rng.random()
    if chance < 0.03:
        return _flags(rng, folder)
    if chance < 0.05:
        return _words(rng, folder)
    if chance < 0.2:
        return _changed([rng.choice(others)], rng, folder)
    return _changed(rng.choices(known, k=3 if rng.random() < 0.1 else 1), rng, folder)


def _changed(chosen: list[Known], rng: random.Random, folder: Path) -> Laid:
    """Documents, each changed in one way, with a command that reads the first, or all in its
    folder.
    """
    files, how, secrets = dict[str, str](), [], set[str]()
    for known in chosen:
        make = rng.choices(_MADE, (5, 4, 1))[0]
        files[known.name] = make(known.text, rng)
        how.append(f"{known.origin} {make.__name__}")
        if rng.random() < 0.15:
            files[known.name], secret = with_secret(files[known.name], known.name, rng)
            secrets.add(secret)

    arguments = _asked(chosen[0].arguments if len(chosen) == 1 else ("validate", "."), rng)
    size_bytes = 0
    for name, text in files.items():
        content = text.encode(errors="surrogatepass" if len(text) % 50 == 0 else "replace")
        (folder / name).write_bytes(content)
        size_bytes += len(content)
    return Laid(
        origin=", ".join(how),
        start=folder,
        arguments=arguments,
        bytes=size_bytes,
        secrets=frozenset(secrets),
    )


def _asked(arguments: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    """A command that reads what `arguments` read, in one of its forms."""
    verb, *rest = arguments
    if verb == "validate":
        if rng.random() < 0.15:
            return ("init", "--from", *rest, "-o", "new.yaml", *rng.choice(_FACTS))
        form = ("--format", rng.choice(("json", "sarif", "github", "azure")))
        arguments += (
            form if rng.random() < 0.4 else rng.choice(((), ("--fix",), ("--fix", "--diff")))
        )
        if rng.random() < 0.6:
            gpus = "64" if rng.random() < 0.8 else size(rng)
            arguments += ("--gpus", gpus, "--cluster", "nvidia/dgx-h100")
        return arguments
    if verb == "estimate":
        return (*arguments, "--format", rng.choice(("table", "json")))
    if verb == "plan":
        asked = rng.choice(_PLAN_FORMS)
        return (*arguments, *(size(rng) if word == "N" else word for word in asked))
    if verb == "generate":
        other = rng.choice(_FOR_SPECS)
        return (other[0], *rest, *other[1:])
    return arguments


#: What files don't say themselves.
_FACTS: Final = ((), ("--gpus", "8"), ("--gpus", "64", "--cluster", "nvidia/dgx-h100"))
_PLAN_FORMS: Final = (
    (),
    ("--format", "json"),
    ("--format", "csv"),
    ("--explain",),
    ("--top", "100"),
    ("--compare", "tensor=2"),
    ("--compare", "fastest"),
    ("--bold",),
    ("--spares", "N"),
)
#: Commands that read a spec, but for `plan` and `estimate`, which are drawn by themselves.
_FOR_SPECS: Final = (
    ("generate", "-o", "out"),
    ("generate", "-o", "out", "--diff"),
    ("generate", "-o", ".", "--force"),
    ("sweep", "gpus=8,64"),
    ("sweep", "gpus=64,128", "--format", "json"),
    ("tune", "--dry-run", "-o", "t"),
    ("report", "-o", "r.html", "--no-sweep"),
    ("submit", "--dry-run", "-o", "out"),
)


def with_secret(text: str, name: str, rng: random.Random) -> tuple[str, str]:
    """`text` with a secret on a line of its own, in the way of the file's kind, and the secret."""
    variable, secret = rng.choice(SECRETS)
    quoted = json.dumps(secret)
    form = {
        ".json": f'"{variable}": {quoted},',
        ".yaml": f"{variable}: {quoted}",
        ".yml": f"{variable}: {quoted}",
    }.get(Path(name).suffix, f"export {variable}={quoted}")
    lines = text.split("\n")
    place = rng.randrange(len(lines) + 1)
    after = lines[place] if place < len(lines) else ""
    indent = after[: len(after) - len(after.lstrip())]
    return "\n".join([*lines[:place], indent + form, *lines[place:]]), secret


def _flags(rng: random.Random, folder: Path) -> Laid:
    """A command with an example and sizes as flags."""
    verb = rng.choice(("plan", "estimate", "generate", "plan", "sweep"))
    example = rng.choice(sorted((ROOT / "examples").glob("*.yaml")))
    names = {"sweep": ("--top",), "plan": _FLAGS}.get(verb, _FLAGS[:4])
    flags = [
        part
        for name in rng.sample(names, rng.randrange(len(names) + 1))
        for part in (name, size(rng))
    ]
    for place in rng.sample(_PLACES, rng.randrange(4)):
        flags += ["--set", f"{place}={size(rng)}"]
    if verb == "sweep":
        flags += [f"gpus=64,{size(rng)}"]
    if verb != "generate" and rng.random() < 0.5:
        flags += ["--format", "json"]
    return Laid(
        origin=f"{verb} {example.name} flags",
        start=folder,
        arguments=(verb, str(example), *flags),
        bytes=example.stat().st_size,
    )


def _words(rng: random.Random, folder: Path) -> Laid:
    """A command with words that it doesn't expect."""
    verb = rng.choice(sorted(set(COMMANDS) - {"tune", "submit"}))
    options = (
        "--gpus",
        "--model",
        "--cluster",
        "--framework",
        "--target",
        "--format",
        "--set",
        "-o",
        "--from",
        "--job",
    )
    words = [
        rng.choice(options) if rng.random() < 0.4 else word(rng) for _ in range(rng.randrange(1, 5))
    ]
    return Laid(origin="words", start=folder, arguments=(verb, *words), bytes=sum(map(len, words)))


def word(rng: random.Random) -> str:
    """A word that a process can be given."""
    word = rng.choice(
        (*PIECES, *SIZES, "gpt2", "h100", "nvidia/dgx-h100", "job", "ZERO021", "fastest")
    )
    return word.replace("\0", "").replace("\ud800", "\udcff")
