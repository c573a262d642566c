"""Damaged documents of every kind: `dsgen validate` answers each with findings, and never with an exception.

`python -m benchmarks.fuzz` takes the project's own documents (examples, rendered files, real DeepSpeed configs, the
rules' cases), damages them with a seeded generator, and validates them one by one and together.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dsgen
from tests.case import NAMES, read_case

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("examples", "tests/golden", "tests/documents/ds_configs", "tests/invalid")
SUFFIXES: Final = frozenset({".json", ".hjson", ".yaml", ".yml", ".sh", ".sbatch", ".slurm", ".txt", ""})

#: Text that readers stumble over: quotes, brackets, expansions, numbers out of range, characters out of place.
PIECES: Final = (
    *"\"'`$\\{}[]()<>|&;#:=,.-+*?!~@%^\t\n ",
    *("\r\n", "\0", "\x1b[31m", "\ufeff", "\u2028", "\x85", "é", "😀", "\ud800", "'''", "/*", "*/", "//", "\\\n"),
    *("null", "true", "auto", "NaN", "-1", "1e400", "9" * 400, "0x", "1_000", "007", ".5", "[]", "{}", '""', "~"),
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
        "<<: *a",
    ),
    *("if ", "fi\n", "for x in ", "do\n", "done\n", "case x in ", "esac\n", "function f {", "export ", "A=$A$A\n"),
)


@dataclass(slots=True)
class Tally:
    """What came of the inputs."""

    inputs: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    crashes: list[tuple[str, str]] = field(default_factory=list)  #: the document it was made of, and the traceback
    slowest_s: float = 0.0
    slowest: str = ""


def documents() -> list[tuple[str, bytes]]:
    """The project's own documents by path, in a fixed order."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    found = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    for case in map(read_case, NAMES):
        for part, files in (("bad", case.bad), ("good", case.good)):
            found |= {f"tests/cases/{case.name}/{part}/{path}": content for path, content in files.items()}
    return sorted((path, content) for path, content in found.items() if Path(path).suffix in SUFFIXES)


def damaged(text: str, rng: random.Random) -> str:
    """`text` after one to eight cuts, copies, insertions, swaps of lines or changes of single characters."""
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


def inputs(seed: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Endless damaged documents, written into `folder` one at a time; now and then a folder of three."""
    rng, known = random.Random(seed), documents()
    while True:
        chosen = rng.choices(known, k=3 if rng.random() < 0.1 else 1)
        for old in folder.iterdir():
            old.unlink()
        for path, original in chosen:
            content = damaged(original.decode("utf-8", errors="replace"), rng)
            raw = content.encode("utf-8", errors="surrogatepass" if rng.random() < 0.02 else "replace")
            (folder / Path(path).name).write_bytes(raw)
        names = ", ".join(path for path, _ in chosen)
        yield names, folder if len(chosen) > 1 else folder / Path(chosen[0][0]).name


def fuzz(count: int, seed: int) -> Tally:
    """`count` inputs validated."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        for origin, path in inputs(seed, Path(name)):
            if tally.inputs >= count:
                break
            tally.inputs += 1
            start = time.perf_counter()
            try:
                findings = dsgen.validate(path, gpus=64, cluster="nvidia/dgx-h100" if tally.inputs % 3 else None)
            except Exception:  # what this looks for
                tally.crashes.append((origin, traceback.format_exc()))
                continue
            spent = time.perf_counter() - start
            if spent > tally.slowest_s:
                tally.slowest_s, tally.slowest = spent, origin
            tally.findings.update({finding.rule for finding in findings})
    return tally


def main() -> None:
    """Print what came of the inputs; exit with 1 when any of them crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tally = fuzz(arguments.inputs, arguments.seed)
    print(f"{tally.inputs:,} inputs (seed {arguments.seed}) from {len(documents())} documents")
    print(f"{len(tally.crashes)} crashes; {len(tally.findings)} different rules fired")
    print(f"slowest: {tally.slowest_s:.2f} s ({tally.slowest})")
    for origin, trace in tally.crashes[:5]:
        print(f"\n{origin}\n{trace}")
    sys.exit(bool(tally.crashes))


if __name__ == "__main__":
    main()
