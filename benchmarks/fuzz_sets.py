"""Inputs for `benchmarks.fuzz`: files that belong together, and specs with values of any key.

A set is the submission of a case or of a golden, with one to three of its files damaged, or mixed
with lines of another set. So what one file says of another is reached: overrides beside a launch,
`fsdp_config` beside arguments, an accelerate file beside a script. A spec is an example whose keys
are set by flags: each key of the published schema, with values that it lists, and others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.case import NAMES, files_of, read_case

from .fuzz_inputs import ROOT, Laid, damaged, lengthened, resized, size, with_secret, word

_GOLDEN: Final = ROOT / "tests/golden"
_EXAMPLES: Final = ROOT / "examples"
_CHECKS: Final = (
    "",
    "--format json",
    "--format sarif",
    "--format github",
    "--format azure",
    "--fix",
    "--fix --diff",
    "--gpus 16",
    "--gpus 64 --cluster nvidia/dgx-h100",
    "--strict",
)
#: Commands on the folder of a set, beside `validate`.
_OTHERS: Final = (
    "init --from . -o new.yaml",
    "init --from . -o new.yaml --gpus 16",
    "init --from . -o new.yaml --gpus 16 --cluster nvidia/dgx-h100 --model qwen2.5-7b",
    "submit . --dry-run",
    "generate {example} -o . --force",
    "generate {example} -o . --diff",
    "validate . --job {example}",
)
_FOR_SPECS: Final = (
    "plan {spec}",
    "plan {spec} --explain",
    "plan {spec} --format json",
    "plan {spec} --spares",
    "plan {spec} --compare fastest",
    "plan {spec} --compare zero_stage=2,recompute=full",
    "estimate {spec}",
    "estimate {spec} --format json",
    "generate {spec} -o out",
    "report {spec} -o r.html --no-sweep",
    "tune {spec} --dry-run -o t",
    "sweep {spec} gpus=8,64",
    "sweep {spec} training.global_batch=64,256 --format json",
)


def lay_out(seed: int, number: int, folder: Path) -> Laid:
    """Make the input of a number in `folder`: a set of files, or a spec with keys set."""
    rng = random.Random(f"sets/{seed}/{number}")
    return _set(rng, folder) if rng.random() < 0.7 else _spec(rng, folder)


@cache
def _sets() -> list[tuple[str, tuple[str, ...], Mapping[str, bytes]]]:
    """Name, flags and files of each set that is whole, in a fixed order."""
    cases = [
        (f"{name}/{part}", case.flags, files)
        for name in NAMES
        for case in (read_case(name),)
        for part, files in (("bad", case.bad), ("good", case.good))
    ]
    goldens = [(path.name, (), files_of(path)) for path in sorted(_GOLDEN.iterdir())]
    several = [entry for entry in cases if len(entry[2]) > 1]
    # Launches that bring an engine of their own have several files seldom, and are few.
    front_ends = [
        entry for entry in cases if entry[0].startswith(("FSDP", "ACC", "BRG", "FRONT", "HF"))
    ]
    return [*several, *front_ends, *goldens * 8]


def _set(rng: random.Random, folder: Path) -> Laid:
    """The files of a set, some of them changed, with a command on their folder."""
    name, flags, files = rng.choice(_sets())
    texts = {path: content.decode(errors="replace") for path, content in files.items()}
    how, secrets = list[str](), set[str]()

    for path in rng.sample(sorted(texts), min(len(texts), rng.choice((1, 1, 2, 3)))):
        match rng.choices(range(4), (5, 3, 5, 0.3))[0]:
            case 0:
                texts[path] = damaged(texts[path], rng)
            case 1:
                texts[path] = resized(texts[path], rng)
            case 2:
                texts[path] = _mixed(path, texts[path], rng)
            case _:
                texts[path] = lengthened(texts[path], rng)
        how.append(path)
        if rng.random() < 0.1:
            texts[path], secret = with_secret(texts[path], path, rng)
            secrets.add(secret)

    size_bytes = 0
    for path, text in texts.items():
        content = text.encode(errors="replace")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        size_bytes += len(content)

    command = rng.choice(_OTHERS) if rng.random() < 0.35 else f"validate . {rng.choice(_CHECKS)}"
    words = command.format(example=rng.choice(sorted(_EXAMPLES.glob("*.yaml")))).split()
    if words[0] == "validate" and "--gpus" not in words and rng.random() < 0.5:
        words += flags
    return Laid(
        origin=f"{name} {', '.join(how)}",
        start=folder,
        arguments=tuple(words),
        bytes=size_bytes,
        secrets=frozenset(secrets),
    )


def _mixed(path: str, text: str, rng: random.Random) -> str:
    """`text` with one to five lines of the same kind of file in other sets."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        _, _, files = rng.choice(_sets())
        alike = [other for other in files if Path(other).suffix == Path(path).suffix]
        if alike:
            others = files[rng.choice(alike)].decode(errors="replace").split("\n")
            place = rng.randrange(len(lines) + 1)
            lines[place : place + rng.randrange(2)] = [rng.choice(others)]
    return "\n".join(lines)


@cache
def _keys() -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Each key of a spec by its path, with the schema of its value."""
    schema = json.loads((ROOT / "schemas/job.schema.json").read_text())

    def below(path: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        reference = node.get("$ref", "").rpartition("/")[2]
        node = schema["$defs"].get(reference, node)
        for branch in (node, node.get("then", {}), node.get("else", {})):
            for name, value in branch.get("properties", {}).items():
                yield f"{path}{name}", value
                yield from below(f"{path}{name}.", value)

    return tuple(below("", schema))


def _value(schema: Mapping[str, Any], rng: random.Random) -> str:
    """A value that a key may have by its schema, or another."""
    if rng.random() < 0.15:
        return size(rng) if rng.random() < 0.5 else word(rng)
    branches = (schema, schema.get("items", {}), schema.get("else", {}))
    listed = [value for branch in branches for value in branch.get("enum", ())]
    listed += schema.get("examples", ())
    if listed:
        return json.dumps(rng.choice(listed))
    if schema.get("type") == "boolean":
        return rng.choice(("true", "false"))
    return rng.choice(("1", "2", "3", "7", "8", "64", "0.5", "null", "{}", "[]", "x"))


def _spec(rng: random.Random, folder: Path) -> Laid:
    """A command that reads a spec, with an example and keys set by flags."""
    example = rng.choice(sorted(_EXAMPLES.glob("*.yaml")))
    arguments = rng.choice(_FOR_SPECS).format(spec=example).split()
    if rng.random() < 0.3:
        arguments += ["--set", "framework=huggingface", "--set", "training.sharding=fsdp2"]
    for path, schema in rng.choices(_keys(), k=rng.choice((1, 2, 3, 6))):
        arguments += ["--set", f"{path}={_value(schema, rng)}"]
    return Laid(
        origin=f"{example.name} with keys",
        start=folder,
        arguments=tuple(arguments),
        bytes=example.stat().st_size + sum(map(len, arguments)),
    )
