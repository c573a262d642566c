"""The repository around a file: the programs that launch lines start, and what Python and prose say of a config."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from ..programs.launching.launch_line import Launch
from ..text.around import (
    files_below,
    folders_above,
    ignored_in,
    is_readable,
    matching,
    text_around,
    until_next_check,
)
from .releases import Release, newest, release_of

STRING: Final = re.compile(r"""["']([^"'\\\s]{1,80})["']""")
#: A parser of transformers, and the classes that it is given; a class without a base has the fields written in it only.
_HF_PARSER: Final = re.compile(r"\bHfArgumentParser\(\s*[(\[]?([^()\[\]]*)")
_USES_HF_PARSER: Final = re.compile(r"\bHfArgumentParser\s*[()\]]")  # and doesn't only import it
_IMPORTS: Final = re.compile(r"^from\s+\.*(\w[\w.]*)\s+import\b", re.MULTILINE)
_BASELESS: Final = re.compile(r"^class\s+(\w+)\s*(?:\(\s*(?:object\s*)?\))?\s*:", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^(?=[ \t]*def\b)", re.MULTILINE)  # begins one
_OWN_PARSER: Final = re.compile(
    r"\bArgumentParser\("
)  # and not `H4ArgumentParser(`, which takes TrainingArguments
#: Parsers of other packages, and the standard library's.
_OTHER_PARSER: Final = re.compile(
    r"\b(?:ArgumentParser\(|fire\.Fire\(|(?:tyro|typer|click|hydra|draccus|jsonargparse|absl)\b)"
)
#: What reads a file of TrainingArguments by their names, these and no others.
_ANY_PARSER: Final = re.compile(
    r"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser|parse_yaml_file|parse_json_file)\b"
)
#: Reading the file of DeepSpeed's config by Python's json: `json.load(open(args.deepspeed_config))`; or a few lines on,
#: by another name.
_OPENS: Final = r"\bopen\(\s*\w+\.(?:deepspeed|ds)(?:_config)?(?:_file)?\b"
_LOADS_JSON: Final = re.compile(
    rf"(?<![\w.])json\.load\(\s*{_OPENS}|{_OPENS}[^\n]*:\s*\n[^\n]*(?<![\w.])json\.load\("
    r"|\b(\w+) = [\w.(]*\w\.(?:deepspeed|ds)_config(?:_file)?\b(?:[^\n]*\n){1,6}?[^\n]*\bopen\(\s*\1\b[^\n]*:\s*\n"
    r"(?:[^\n]*\n){0,3}?[^\n]*(?<![\w.])json\.load\("
)
#: Of a folder; of 3,630 folders with Python in 230 public repositories 99.9 % have no more.
MOST_FILES: Final = 60
#: Folders up from a config whose programs are taken for its own: 436 of 473 public ones have Python on DeepSpeed there.
_NEAR: Final = 3
#: A call of DeepSpeed's engine up to an argument: brackets within it are closed.
_INITIALIZED: Final = (
    r"\bdeepspeed\.initialize\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*?\b"
)
_TELLS: Final = {
    "MPI": (
        re.compile(r"\bmpi4py\b|\bMPI\b"),
        ("README*", "requirement*", "*.py", "*.sh", "*.s*batch"),
    ),
    # A program that finds out its rank by itself.
    # Source: lightning_fabric/plugins/environments/slurm.py @ 2.5.5 (global_rank: SLURM_PROCID).
    "ranks": (
        re.compile(
            r"SLURM_|OMPI_|mpi4py|PMI_|RANK['\"]\]\s*=|^[ \t]*(?:import|from)\s+(?:pytorch_)?lightning\b",
            re.MULTILINE,
        ),
        ("*.py",),
    ),
    # Programs without the Trainer, as transformers says; it compares the config with the arguments.
    "no Trainer": (re.compile(r"\bHfDeepSpeedConfig\("), ("*.py", "*/*.py")),
    # What a program builds itself, which the engine takes in place of the config's.
    # Source: deepspeedai/DeepSpeed runtime/engine.py:1884, :2329 @ 0.19.8
    "an optimizer": (re.compile(_INITIALIZED + r"optimizer=(?!None\b)"), ("*.py", "*/*.py")),
    "a schedule": (re.compile(_INITIALIZED + r"lr_scheduler=(?!None\b)"), ("*.py", "*/*.py")),
    "the engine": (
        re.compile(r"^[^#\n]*\bdeepspeed\.initialize\(", re.MULTILINE),
        ("*.py", "*/*.py"),
    ),
    # Programs that fill in what is "auto".
    "a filler": (
        re.compile(
            r"\bTrain(?:er|ingArguments)\b|\bHfDeepSpeedConfig\b|\baccelerate\b|\bAccelerator\b|lightning"
        ),
        ("*.py", "*/*.py", "*/*/*.py"),
    ),
    "transformers' parser": (re.compile(r"\bHfArgumentParser\b"), ("*.py",)),
    "another parser": (
        re.compile(r"\bTrlParser\b|\(\s*HfArgumentParser\s*\)|\bOmegaConf\b"),
        ("*.py",),
    ),
}

#: Files that may name a config; in prose and comments an option has to be before it.
_PROSE: Final = (".md", ".rst", ".txt")
_CODE: Final = (
    ".py",
    ".sh",
    ".bash",
    ".sbatch",
    ".slurm",
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".ipynb",
    "Makefile",
)
_MOST_NAMING: Final = 2_000  # such files, and their bytes in all that are read: bounds on time
_MOST_BYTES: Final = 8_000_000
_ENOUGH_LETTERS: Final = 3  # of a name of which variables make a part
_SUFFIX: Final = re.compile(r"\.(?:h?json|ya?ml)\b")  # looked for first: paths begin anywhere
_PATH: Final = re.compile(r"[\w.${}/-]*")  # in letters from the last to the first
_OF_OPTION: Final = re.compile(r"--?[\w.-]+[= ][\"']?$")  # what is before the path on its line
_IN_COMMENT: Final = re.compile(r"(?<!\S)#")
_MOST_BEFORE: Final = 200  # characters of a line before a path
_VARIABLE: Final = re.compile(r"\$?\{\w*\}|\$\w+")


def program_path(launch: Launch | None) -> str | None:
    """The training script's path from the folder that it is run from, or from one that a variable names."""
    word = launch.program if launch is not None else None
    last = word.parts[-1] if word is not None and word.parts else None
    return last.lstrip("/") if word is not None and word.value is None and last else last


def program_of(launch: Launch | None) -> Path | None:
    """The Python file that a launch line starts, where it is there."""
    found = (
        find_programs(program_path(launch), launch.script.text.path) if launch is not None else ()
    )
    return next(iter(found), None)


def program_text(launch: Launch) -> str | None:
    """The text of the Python file that a launch line starts; None where it isn't there."""
    found = program_of(launch)
    return text_around(found, found.parent) if found is not None else None


@until_next_check(64)
def declares_its_own(program: Path, names: frozenset[str]) -> bool:
    """Return whether a program declares its options itself: one of `names` by argparse, or all by classes that inherit
    from none."""
    text = text_around(program, program.parent)
    given = [name for words in _HF_PARSER.findall(text) for name in re.findall(r"[\w.]+", words)]
    if given or _USES_HF_PARSER.search(text):
        modules = (f"{module.replace('.', '/')}.py" for module in _IMPORTS.findall(text))
        texts = (
            text,
            *(text_around(program.parent / module, program.parent) for module in modules),
        )
        return bool(given) and set(given) <= {
            name for each in texts for name in _BASELESS.findall(each)
        }
    written = {
        word.lstrip("-").replace("-", "_") for word in STRING.findall(text) if word.startswith("--")
    }
    by_signature = "fire.Fire(" in text  # which takes a function's arguments for options
    return by_signature or (_OWN_PARSER.search(text) is not None and not names.isdisjoint(written))


def hands_options_on(program: Path) -> bool:
    """Return whether a program may hand its options to another, by a parser that isn't transformers'."""
    text = text_around(program, program.parent)
    return _OTHER_PARSER.search(text) is not None and not _ANY_PARSER.search(text)


def sets_key(pointer: str, holder: str) -> bool:
    """Return whether Python near the config `holder` sets the key, `config["key"] = …`, and names its block."""
    block, _, key = pointer.rpartition("/")
    beside = rf"""\A(?=[\s\S]*["']{block.rpartition("/")[2]}["'])[\s\S]*?""" if block else ""
    return _near(beside + r"""\[["']{}["']\]\s*=(?!=)""", key, holder)


def reads_key(key: str, holder: str) -> bool:
    """Return whether Python near the config `holder` looks the key up in a mapping."""
    return _near(r"""(?:\[|\b(?:get|pop)\()\s*["']{}["']""", key, holder)


def declares_field(name: str, holder: str) -> bool:
    """Return whether a class in Python near the file `holder` has the field itself."""
    return _near(r"^[ \t]+{}[ \t]*:[^=\n()]+=", name, holder)


def _near(pattern: str, word: str, holder: str) -> bool:
    """Return whether Python in or just below a folder above a file has the pattern, in which `{}` is the word."""
    found = re.compile(pattern.replace("{}", re.escape(word)), re.MULTILINE)
    return any(_has(folder, found, ("*.py", "*/*.py"), word) for folder in folders_above(holder))


def hands_to_trainer(holder: str) -> bool:
    """Return whether Python near the config `holder` names it to the Trainer: `deepspeed="configs/ds_config.json"`."""
    return any(_has_handed(folder, Path(holder).name) for folder in folders_above(holder))


@until_next_check(512)
def _has_handed(folder: Path, name: str) -> bool:
    text_of_name = rf"""["'](?:[\w./-]*/)?{re.escape(name)}["']"""
    named = re.compile(rf"^([ \t]*)(\w+)[ \t]*=[ \t]*{text_of_name}", re.MULTILINE)
    handed = re.compile(
        rf"^[^#\n]*(?<![.\w])deepspeed\s*=\s*(?:{text_of_name}|(\w+)\b)", re.MULTILINE
    )
    for text in _texts(folder, ("*.py", "*/*.py"), name):
        everywhere = {variable for indent, variable in named.findall(text) if not indent} | {""}
        for function in _FUNCTION.split(text):
            given = set(handed.findall(function))
            if not (
                given.isdisjoint(everywhere)
                and given.isdisjoint(each for _, each in named.findall(function))
            ):
                return True
    return False


def has_programs(holder: str) -> bool:
    """Return whether there is Python in or just below a folder above the file `holder`: it may complete a config."""
    return any(_has(folder, re.compile(""), ("*.py", "*/*.py")) for folder in folders_above(holder))


def tells(what: str, holder: str) -> bool:
    """Return whether files near above the file `holder` tell this of its runs: a key of `_TELLS`."""
    pattern, names = _TELLS[what]
    return any(_has(folder, pattern, names) for folder in islice(folders_above(holder), _NEAR))


def loads_json(launch: Launch) -> bool:
    """Return whether the program of a launch line reads its DeepSpeed config by Python's json too, which is strict."""
    return _LOADS_JSON.search(program_text(launch) or "") is not None


def reads_its_own_way(holder: str) -> bool:
    """Return whether Python above the arguments file `holder` is there, and has none of transformers' parsers."""
    return has_programs(holder) and not any(
        _has(folder, _ANY_PARSER, ("*.py", "*/*.py", "*/*/*.py"))
        for folder in folders_above(holder)
    )


def is_named(path: str) -> bool:
    """Return whether code of the project has the name of a config, or a comment or prose has it after an option."""
    *_, project = (Path(path).parent, *folders_above(path))
    named, made = _names_in(project)
    name, folder = PurePath(path).name, Path(path).absolute().parent.name
    alike = (
        home in ("", folder)
        for home, first, last in made
        if name.startswith(first) and name.endswith(last)
    )
    return not named.get(name, set()).isdisjoint(("", folder)) or any(alike)


@until_next_check(16)
def _names_in(project: Path) -> tuple[Mapping[str, set[str]], frozenset[tuple[str, str, str]]]:
    """The names of configs in code and commands of a project, with the folders that are written before them, "" for
    none and on other machines; beginnings and ends of those that variables make, with the folder where little else is
    known."""
    found, left = set[str](), _MOST_BYTES
    below = files_below(project, {name for name, ignored in ignored_in(project).items() if ignored})
    for place in islice(
        (place for place in below if place.name.endswith(_PROSE + _CODE)), _MOST_NAMING
    ):
        text, prose = (
            text_around(place, project, left),
            place.suffix in _PROSE or place.name.startswith("test"),
        )
        left = max(left - len(text), 0)
        for match in _SUFFIX.finditer(text):
            line = text[max(match.start() - _MOST_BEFORE, 0) : match.start()].rpartition("\n")[2][
                ::-1
            ]
            path = _PATH.match(line)[0]  # type: ignore[index]
            before = line[len(path) :][::-1]
            if _OF_OPTION.search(before) or not (prose or _IN_COMMENT.search(before)):
                found.add(path[::-1] + match[0])
    named, made = defaultdict[str, set[str]](set), set[tuple[str, str, str]]()
    for folder, _, name in (path.rpartition("/") for path in found):
        home = folder.rpartition("/")[2].strip(".")
        home = "" if _VARIABLE.search(home) else home
        named[name].add("" if folder.startswith("/") else home)
        parts = _VARIABLE.split(name)
        enough = len((parts[0] + parts[-1]).rpartition(".")[0]) >= _ENOUGH_LETTERS
        if len(parts) > 1 and (enough or home):
            made.add(("" if enough else home, parts[0], parts[-1]))
    return named, frozenset(made)


@until_next_check(512)
def _has(folder: Path, pattern: re.Pattern[str], names: tuple[str, ...], word: str = "") -> bool:
    """Return whether a pattern is in one of the folder's files of these names; what matches it has the `word`."""
    return any(map(pattern.search, _texts(folder, names, word)))


def _texts(folder: Path, names: tuple[str, ...], word: str) -> Iterator[str]:
    """The texts of the folder's files of these names that have the `word`."""
    files = (path for name in names for path in islice(matching(name, folder, folder), MOST_FILES))
    return (text for text in (text_around(path, folder) for path in files) if word in text)


def find_programs(program: str | None, holder: str) -> tuple[Path, ...]:
    """The Python files that a path may mean, the nearest first: from the folder of what starts it, or one above; of an
    absolute path, which is of another machine, those of its name beside, or in a folder of the same name as there."""
    return (
        _found(program, Path(holder).parent, Path.cwd())
        if program and program.endswith(".py")
        else ()
    )


@until_next_check(1024)
def _found(program: str, folder: Path, _: Path) -> tuple[Path, ...]:
    name, above = program, folders_above(folder / PurePath(program).name)
    if program.startswith("/"):
        path = PurePath(program)
        name, above = (
            path.name,
            (base for base in above if base == folder.absolute() or base.name == path.parent.name),
        )
    return tuple(place for place in (base / name for base in above) if is_readable(place, folder))


def release_for(program: str, holder: str, launches: Iterable[Launch]) -> Release:
    """The release of a program that is named above the file `holder`, else above what is started; else the newest."""
    places = (holder, *filter(None, map(program_of, launches)))
    return next(
        filter(None, (release_of(program, str(place)) for place in places)), newest(program)
    )


@until_next_check(64)
def programs_in(place: Path, folder: Path, pattern: str = "*.py") -> list[Path]:
    """The Python files of a place in the project of `folder`, in order; none where it may not be read."""
    return list(matching(pattern, place, folder))
