"""Measure how often `dsgen validate` and DeepSpeed's own parser agree: `python -m
benchmarks.agreement_deepspeed`.

Real configs, the configs that dsgen renders for its examples, and seeded mutations of both go to
DeepSpeed's parser, in one process per release on 8 imaginary ranks, and to dsgen's rules, in this
process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from benchmarks.deepspeed_mutations import WORLD, for_world, mutants

REPOSITORY = Path(__file__).parents[1]
CACHE = Path.home() / ".cache" / "dsgen-deepspeed"  #: of releases of DeepSpeed
CONFIGS = REPOSITORY / "tests" / "programs" / "ds_configs"
RELEASES = ("0.19.8", "0.16.9", "0.14.5", "0.12.6")
MUTANTS = 2000
STANDS_ALONE = (0, 14)  #: the first release that needs no module that today's environment lacks

#: Rules whose notes say so: a template's placeholders, and what the autotuner tries.
_FILLED_IN = ("PARSE015", "MON005")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Both verdicts on one config."""

    name: str
    text: str
    accepted: bool  #: by DeepSpeed's parser
    error: str | None  #: what it said
    errors: tuple[tuple[str, str, str], ...]  #: dsgen's: rule, when it would be noticed, message
    #: whether dsgen says in a note that something else fills it in before DeepSpeed reads it
    filled: bool = False

    @property
    def at_parse(self) -> bool:
        """Return whether dsgen says that the parser refuses it."""
        return any(when == "parse" for _, when, _ in self.errors)

    @property
    def verdict(self) -> str:
        """In which of the four cells of the table it falls."""
        if self.accepted:
            return "false alarm" if self.at_parse else "accepted by both"
        if self.errors:
            return "rejected by both"
        return "filled in first" if self.filled else "missed"


def main() -> None:
    """Print the agreement, release by release."""
    options = _options()
    disagreements = 0
    for version in options.releases:
        published = [*real_configs(), *rendered_configs()]
        bases = [(name, text) for name, text in published if is_json(text)]
        texts = [*published, *((f"{n} for {WORLD}", fitted(t)) for n, t in bases)]
        texts += mutants(bases, options.mutants, version, options.seed)
        folder = installed(version, options.cache)
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)  # where no program is around a config
            answers = compare(texts, version, folder)
            os.chdir(REPOSITORY)
        disagreements += report(answers, version, options.show)
    sys.exit(1 if disagreements else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", nargs="+", default=RELEASES)
    parser.add_argument("--mutants", type=int, default=MUTANTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="disagreements printed in full")
    parser.add_argument("--cache", type=Path, default=CACHE)
    return parser.parse_args()


def installed(version: str, cache: Path) -> Path | None:
    """Folder of the release; None for the environment's own."""
    with contextlib.suppress(PackageNotFoundError):
        if metadata.version("deepspeed") == version:
            return None
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    from deepspeed_keys import install  # type: ignore[import-not-found]

    folder: Path = install(version, cache)
    return folder


def real_configs() -> list[tuple[str, str]]:
    """Configs that people published, in JSON and in HJSON."""
    return [
        (path.name, path.read_text(encoding="utf-8")) for path in sorted(CONFIGS.glob("*.json"))
    ]


def is_json(text: str) -> bool:
    """Return whether a config is strict JSON, as those are that mutations start from."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def rendered_configs() -> list[tuple[str, str]]:
    """The configs that dsgen writes for its own examples."""
    golden = REPOSITORY / "tests" / "golden"
    found = sorted(golden.glob("*/*ds_config*.json")) or sorted(
        golden.glob("*/**/*ds_config*.json")
    )
    return [(f"{path.parent.name}/{path.name}", path.read_text(encoding="utf-8")) for path in found]


def fitted(text: str) -> str:
    """The config with a batch for `WORLD` ranks."""
    return json.dumps(for_world(json.loads(text)), indent=2)


def compare(texts: Iterable[tuple[str, str]], version: str, folder: Path | None) -> list[Answer]:
    """Both verdicts on every text."""
    listed = list(texts)
    theirs = ask_deepspeed([text for _, text in listed], version, folder)
    return [
        Answer(
            name=name,
            text=text,
            accepted=said["accepted"],
            error=said["error"],
            **ask_dsgen(text, version),
        )
        for (name, text), said in zip(listed, theirs, strict=True)
    ]


def ask_deepspeed(texts: list[str], version: str, folder: Path | None) -> list[dict[str, Any]]:
    """The verdicts of the release in `folder`, else of the environment's own, from a process of its
    own.
    """
    paths = [str(REPOSITORY)] if folder is None else [str(folder), str(REPOSITORY)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.deepspeed_verdicts", str(WORLD)]
    command += ["--old"] if tuple(map(int, version.split("."))) < STANDS_ALONE else []
    done = subprocess.run(
        command, input=lines, env=environment, cwd=REPOSITORY, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"DeepSpeed can't be asked:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask_dsgen(text: str, version: str) -> dict[str, Any]:
    """dsgen's `errors` on a config that 8 GPUs read, and whether it is `filled` in first."""
    from dsgen.check.rules.run import all_file_rules, check_submission
    from dsgen.findings import Severity
    from dsgen.programs.deepspeed.config import DsConfig
    from dsgen.programs.deepspeed.rules.values import COMPUTED_LATER
    from dsgen.programs.records import PROGRAMS
    from dsgen.submission.submission import Context, Submission
    from dsgen.text.hjson.text import read_json
    from dsgen.text.text import text_of

    # The parser takes HJSON; init_compression reads the file again, by json
    # (deepspeed/compression/compress.py).
    when = {rule.id: rule.when for rule in all_file_rules()} | {"PARSE002": "init"}
    config = DsConfig(json=read_json(text_of(text, "ds_config.json")))
    numbers = tuple(map(int, version.split(".")))
    submission = Submission(
        programs=PROGRAMS,
        documents=(config,),
        context=Context(gpus=WORLD, consumer="deepspeed", deepspeed_version=numbers),
    )
    findings = check_submission(submission)
    later = {
        (rule, pointer)
        for rule in ("PARSE009", "PARSE015", "PARSE017")
        for pointer in COMPUTED_LATER
    }  # what only training stops at
    errors = tuple(
        (f.rule, "training" if (f.rule, f.where.pointer) in later else when[f.rule], f.message)
        for f in findings
        if f.severity is Severity.ERROR
    )
    return {"errors": errors, "filled": any(f.rule in _FILLED_IN for f in findings)}


def report(answers: list[Answer], version: str, show: int) -> int:
    """Print the table of a release; the number of disagreements."""
    cells = Counter(answer.verdict for answer in answers)
    print(f"\nDeepSpeed {version}: {len(answers)} configs")
    for cell in (
        "rejected by both",
        "accepted by both",
        "filled in first",
        "missed",
        "false alarm",
    ):
        print(f"  {cell:18} {cells[cell]:6}")
    wrong = [answer for answer in answers if answer.verdict in ("missed", "false alarm")]
    for answer in wrong[:show]:
        print(
            f"\n{answer.verdict}: {answer.name}\n  DeepSpeed: {answer.error}\n  dsgen: "
            f"{answer.errors}\n{answer.text}"
        )
    others = Counter(
        "/".join(sorted({rule for rule, _, _ in answer.errors}))
        for answer in answers
        if answer.verdict == "rejected by both" and not answer.at_parse
    )
    if others:
        print("  rejected by both, but dsgen gives another reason:")
    for rules, count in sorted(others.items()):
        print(f"    {rules:20} {count:6}")
    later = Counter(
        (rule, when) for answer in answers if answer.accepted for rule, when, _ in answer.errors
    )
    if later:
        print("  errors on configs that the parser accepts:")
    for (rule, when), count in sorted(later.items()):
        print(f"    {rule:10} {when:10} {count:6}")
    return len(wrong)


if __name__ == "__main__":
    main()
