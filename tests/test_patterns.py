"""What a pattern takes of time grows with its text, no faster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.cli.generate import _ADAPTS
from dsgen.cli.sweep import _PRICE
from dsgen.job.needs import _ARGUMENT_FILE
from dsgen.places import _LEFT_OPEN
from dsgen.programs.deepspeed.log import _settings
from dsgen.programs.megatron.run import chunks_of
from dsgen.programs.slurm.write import _REGISTRY
from dsgen.programs.trainer.log import read as read_trainer
from dsgen.secrets import _FILES
from dsgen.submission.repository import _OF_OPTION
from dsgen.submission.script import is_template
from dsgen.text.shell.background import _REDIRECTION

from .patterns import all_patterns, literals

pytestmark = pytest.mark.xdist_group("patterns")  # one process collects them, once

#: Characters of a text. What is quick at `SCREENED` is quick at the last.
SIZES = (12, 25, 100, 400, 1_600, 6_400, 25_000, 100_000)
SCREENED = 6_400
#: What grows with the square takes three quarters of a second for the last size then.
QUICK_S = 0.003
MOST_S = 1.0  #: processor time; usual are milliseconds
TEXTS = (*" \t\n0a-.=:,\"'`[](){}<>$\\/#", "{ ", "a ", "a.", "0 ", " \n", "\\ ", '"a')
END = "\0\n\0"  #: what no pattern has in view, so that it looks for another way

HOME = Path(dsgen.__file__).parent
FOLDERS = sorted(
    ".".join(("dsgen", *path.relative_to(HOME).parts))
    for path in (*HOME.iterdir(), *HOME.glob("programs/*"))
    if (path / "__init__.py").is_file()
)


def _takes(pattern: re.Pattern[Any], way: str, unit: str) -> float:
    """Processor seconds for the longest text of a unit that is worth a look."""
    taken = 0.0
    for size in SIZES:
        text: Any = (unit * (size // len(unit) + 1))[:size] + END
        text = text.encode() if isinstance(pattern.pattern, bytes) else text
        begun = time.process_time()
        if way == "finditer":
            for _ in pattern.finditer(text):
                pass
        else:
            getattr(pattern, way)(text)
        taken = time.process_time() - begun
        if taken > MOST_S or (size == SCREENED and taken < QUICK_S):
            break
    return taken


def _units(pattern: re.Pattern[Any]) -> Iterator[str]:
    """What is repeated: the same for all patterns, and the texts that this one has."""
    yield from TEXTS
    for text in sorted(literals(pattern)):
        yield text
        yield f"{text} "


def _folder(name: str) -> str:
    """The innermost folder of the package that has a pattern's module; the package for others."""
    inside = (folder for folder in FOLDERS if re.match(rf"{re.escape(folder)}\b", name))
    return max(inside, key=len, default="dsgen")


@pytest.mark.parametrize("folder", ["dsgen", *FOLDERS])
def test_no_pattern_takes_time_that_grows_with_the_square(folder: str) -> None:
    """Each pattern is through 100 kB of any character or of its own texts in a second."""
    slow = {
        (use.name, way, unit): taken
        for pattern, use in all_patterns().items()
        if _folder(use.name) == folder
        for way in sorted(use.ways)
        for unit in _units(pattern)
        if (taken := _takes(pattern, way, unit)) > MOST_S
    }
    assert not slow


def test_patterns_are_found_wherever_they_are() -> None:
    """Those of modules, containers, functions and data are timed, in the ways of their use."""
    names = {use.name: use.ways for use in all_patterns().values()}
    assert names["dsgen.places._LEFT_OPEN"] == {"fullmatch"}
    assert names["dsgen.cli.generate._ADAPTS"] == {"finditer"}
    assert names["dsgen.rules.job.data._KINDS"] == {"fullmatch"}
    assert any(name.startswith("secrets.json") for name in names)
    assert any(re.match(r"dsgen\.programs\.slurm\.rules\.options:[0-9]+", name) for name in names)


def test_the_square_is_noticed() -> None:
    """A pattern that begins anew at every blank takes longer than it may."""
    assert _takes(re.compile(r"[ ]*\t*x"), "finditer", " ") > MOST_S


def _searched(pattern: str | re.Pattern[str]) -> Callable[[str], object]:
    made = re.compile(pattern, re.IGNORECASE) if isinstance(pattern, str) else pattern
    return lambda text: made.search(text) is not None


def _last_size(text: str) -> str | None:
    """The size of tensor parallelism on a line of DeepSpeed's log, by one pattern."""
    found = re.search(r"tensor_parallel_config .*\bautotp_size=([0-9]{1,6})\b", text)
    return found and found[1]


def _expanded(text: str) -> tuple[str, ...]:
    """A layout of a pipeline, its repeats written out by plain patterns."""
    for pattern in (r"\(([^)]+)\)\*([0-9]+)", r"(.)\*([0-9]+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return tuple(text.split("|"))


@pytest.mark.parametrize(
    ("plain", "ours", "parts"),
    [
        (
            _searched(r"--\S*(?:lora|peft|adapter)|--config"),
            _searched(_ADAPTS),
            ("-", "--", "lora", "x", "config", " "),
        ),
        (
            _searched(r"config[^\s=]*[\s=]\S*\.(?:json|ya?ml|toml)(?!\S)"),
            _searched(_ARGUMENT_FILE),
            ("config", "=", " ", ".json", ".yml", "x"),
        ),
        (
            _searched(r"--?[\w.-]+[= ][\"']?$"),
            _searched(_OF_OPTION),
            ("-", "x", ".", "=", " ", '"'),
        ),
        (
            re.compile(r"(?:[^/#]+@)?(?:[^/#]*[.:][^/#]*|localhost)/.+").fullmatch,
            _REGISTRY.fullmatch,
            ("@", "localhost", "/", ":", "x", "#"),
        ),
        (
            lambda text: re.sub(r"[0-9]*[<>]&[0-9]*-?|&>>?", "_", text),
            lambda text: _REDIRECTION.sub("_", text),
            ("1", "2", ">", "&", "-", " "),
        ),
        (
            re.compile(r"[\w.@:{},-]*(?:[*?/][\w.@:{},*?-]*)+").fullmatch,
            _FILES.fullmatch,
            ("*", "?", "/", "x", ".", " "),
        ),
        (
            re.compile(r"\$?([0-9]*\.?[0-9]+(?:e[0-9]{1,2})?)\s*([kmb]?)").fullmatch,
            _PRICE.fullmatch,
            ("$", "1", ".", "e", " ", "m"),
        ),
        (
            re.compile(r".*(?<![A-Za-z])(?:your[_ -]|path[/_]to[/_]).*", re.IGNORECASE).fullmatch,
            _LEFT_OPEN.fullmatch,
            ("your_", "z", "/", "path_to/", "\n"),
        ),
        (
            _searched(r"\{'loss': .*'epoch': "),
            lambda text: read_trainer([text]) is not None,
            ("{'loss': ", "'epoch': ", "1", "'"),
        ),
        (
            _last_size,
            lambda text: _settings([f":print] {text}"])[0].get("autotp_size"),
            ("tensor_parallel_config ", "autotp_size=", "8", "12", " "),
        ),
        (_expanded, chunks_of, ("(", ")", "*2", "t", "|", ")*2")),
    ],
    ids=[
        "adapters",
        "files of arguments",
        "options",
        "registries",
        "redirections",
        "files",
        "prices",
        "values",
        "losses",
        "sizes",
        "layouts",
    ],
)
def test_patterns_that_read_once_accept_the_same(
    plain: Callable[[str], object], ours: Callable[[str], object], parts: tuple[str, ...]
) -> None:
    """A pattern that reads a text once answers as the plain one does, for all short texts of its
    parts.
    """
    for length in range(1, 6):
        for text in map("".join, product(parts, repeat=length)):
            was, now = plain(text), ours(text)
            if isinstance(was, re.Match) and isinstance(now, re.Match):
                was, now = was.span(), now.span()
            assert was == now, text


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("{{ a }}", True),
        ("  {{ a }}", True),
        ("key: {{ a }}", True),
        ("  - {{ a }}", True),
        ("x {% if a %}", True),
        ("key: ${{ a }}", False),
        ("key: a {{ b }}", False),
    ],
)
def test_templates_are_told_by_their_expressions(text: str, is_one: bool) -> None:
    """A value or a line that is an expression makes a template; one within a text doesn't."""
    assert is_template(f"a: 1\n{text}\n") is is_one
