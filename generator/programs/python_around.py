"""What the Python files around a file tell of its runs: whether they make DeepSpeed's engine, and
with which parser they read options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from posixpath import dirname
from typing import Final

from ..numerals import python_float
from ..patterns import lazy_pattern
from ..submission.launches import Launch
from ..submission.repository import (
    MOST_FILES,
    STRING,
    has_programs,
    has_text,
    imported_by,
    program_of,
    program_text,
    texts_of,
)
from ..submission.submission import Submission
from ..text.around import folders_above, matching, text_around, until_next_check
from .releases import Release, installed_by, newest, release_of

#: A parser of transformers, and the classes that it is given; a class without a base has the fields
#: written in it only.
_HF_PARSER: Final = lazy_pattern(r"\bHfArgumentParser\(\s*[(\[]?([^()\[\]]*)")
_USES_HF_PARSER: Final = lazy_pattern(r"\bHfArgumentParser\s*[()\]]")  # and doesn't only import it
_IMPORTS: Final = lazy_pattern(r"^from\s+\.*(\w[\w.]*)\s+import\b", re.MULTILINE)
#: A class without a base.
_BASELESS: Final = lazy_pattern(r"^class\s+(\w+)\s*(?:\(\s*(?:object\s*)?\))?\s*:", re.MULTILINE)
_FUNCTION: Final = lazy_pattern(r"^(?=[ \t]*def\b)", re.MULTILINE)  #: where one begins
#: argparse's, and not `H4ArgumentParser(`, which takes TrainingArguments.
_OWN_PARSER: Final = lazy_pattern(r"\bArgumentParser\(")
#: Parsers of other packages, and the standard library's.
_OTHER_PARSER: Final = lazy_pattern(
    r"\b(?:ArgumentParser\(|fire\.Fire\(|(?:tyro|typer|click|hydra|draccus|jsonargparse|absl)\b)"
)
#: What reads a file of TrainingArguments by their names, these and no others.
_ANY_PARSER: Final = lazy_pattern(
    r"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser|parse_yaml_file|parse_json_file)\b"
)
#: Loading YAML, and what takes the values for arguments as they are loaded.
_LOADS_YAML: Final = lazy_pattern(r"\byaml\.(?:safe_)?load\(|\bOmegaConf\.load\(")
_TAKES_VALUES: Final = lazy_pattern(
    r"\b(?:parse_yaml_file|parse_json_file|parse_dict|TrlParser|H4ArgumentParser)\b"
    r"|\b\w*(?:Arguments|Config)\(\s*\*\*"
)
#: Reading the file of DeepSpeed's config by Python's json:
#: `json.load(open(args.deepspeed_config))`; or a few lines on, by another name.
_OPENS: Final = r"\bopen\(\s*\w+\.(?:deepspeed|ds)(?:_config)?(?:_file)?\b"
_LOADS_JSON: Final = lazy_pattern(
    rf"(?<![\w.])json\.load\(\s*{_OPENS}|{_OPENS}[^\n]*:\s*\n[^\n]*(?<![\w.])json\.load\("
    r"|\b(\w+) = [\w.(]*\w\.(?:deepspeed|ds)_config(?:_file)?\b"
    r"(?:[^\n]*\n){1,6}?[^\n]*\bopen\(\s*\1\b[^\n]*:\s*\n"
    r"(?:[^\n]*\n){0,3}?[^\n]*(?<![\w.])json\.load\("
)
#: Folders up from a config whose programs are taken for its own: 436 of 473 public ones have Python
#: on DeepSpeed there.
_NEAR: Final = 3
#: A call of DeepSpeed's engine up to an argument: brackets within it are closed.
_INITIALIZED: Final = (
    r"\bdeepspeed\.initialize\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*?\b"
)
#: Devices by number; a model's parts by a map; copies of a model on every GPU.
_DEVICE: Final = lazy_pattern(r"""["']cuda:([0-9]{1,2})["']|\.cuda\(([0-9]{1,2})\)""")
_DEVICE_MAP: Final = lazy_pattern(r"""\bdevice_map\s*=\s*["'](?:auto|balanced|sequential)""")
_COPIES: Final = lazy_pattern(r"(?<!Distributed)\bDataParallel\(")
#: The first GPU of a rank that has several: `2 * local_rank`, or `local_rank * gpus_per_rank`.
_BY_RANK: Final = lazy_pattern(
    r"\blocal_?rank\s*\*\s*(\w+)|\b(\w+)\s*\*\s*(?:\w+\.)?local_?rank\b", re.IGNORECASE
)
_OF_GPUS: Final = lazy_pattern(r"gpu|device", re.IGNORECASE)
_COMMENT: Final = lazy_pattern(r"(?<!\S)#[^\n]*")
#: Code that may read a config and fill in "auto" by itself.
_MAY_FILL: Final = lazy_pattern(r"""["']auto["']|\bjson\.load\(|\bOmegaConf\b""")
_RATE: Final = lazy_pattern(r"\b(?:lr|learning_rate)\s*=\s*([0-9][0-9.]*(?:e-?[0-9]+)?)")
#: Signs of what programs do, by name: a pattern, and the files in which it is looked for.
_SIGNS: Final = {
    "MPI": (
        re.compile(r"\bmpi4py\b|\bMPI\b"),
        ("README*", "requirement*", "*.py", "*.sh", "*.s*batch"),
    ),
    # A program that finds out its rank by itself.
    # Source: lightning_fabric/plugins/environments/slurm.py @ 2.5.5 (global_rank: SLURM_PROCID).
    "ranks": (
        re.compile(
            r"SLURM_|OMPI_|mpi4py|PMI_|RANK['\"]\]\s*="
            r"|^[ \t]*(?:import|from)\s+(?:pytorch_)?lightning\b",
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
    "the Trainer": (re.compile(r"\b\w*(?:Trainer|TrainingArguments)\("), ("*.py", "*/*.py")),
    "Transformers' models": (
        re.compile(r"\b(?:AutoModel\w{0,40}|\w{1,40}For[A-Z]\w{1,40})\.from_pretrained\("),
        ("*.py", "*/*.py"),
    ),
    "DeepSpeed's checkpointing": (
        re.compile(
            r"\bdeepspeed\.checkpointing\b|\bactivation_checkpointing\.checkpointing\b"
            r"|^[ \t]*from\s+deepspeed[\w.]*\s+import\b[^\n]*\bcheckpointing\b",
            re.MULTILINE,
        ),
        ("*.py", "*/*.py", "*/*/*.py"),
    ),
    # What is checkpointed in any case, not only where an argument says so.
    "checkpointing by itself": (
        re.compile(
            r"\bgradient_checkpointing\b[^\n#]{0,80}\bTrue\b"
            r"|^(?![ \t]*(?:el)?if\b)[^\n]*\n[^\n#]*(?<!def )\bgradient_checkpointing_enable\(",
            re.MULTILINE,
        ),
        ("*.py", "*/*.py"),
    ),
    # Programs that fill in what is "auto".
    "a filler": (
        re.compile(
            r"\bTrain(?:er|ingArguments)\b|\bHfDeepSpeedConfig\b|\baccelerate\b"
            r"|\bAccelerator\b|lightning"
        ),
        ("*.py", "*/*.py", "*/*/*.py"),
    ),
    "leaf modules": (
        re.compile(r"z3_leaf|leaf_module|moe_layer_cls|moe_leaf"),
        ("*.py", "*/*.py", "*.json", "*.y*ml"),
    ),
    "transformers' parser": (re.compile(r"\bHfArgumentParser\b"), ("*.py",)),
    "another parser": (
        re.compile(r"\bTrlParser\b|\(\s*HfArgumentParser\s*\)|\bOmegaConf\b"),
        ("*.py",),
    ),
}


@until_next_check(64)
def declares_its_own(program: Path, names: frozenset[str]) -> bool:
    """Return whether a program declares its options itself: one of `names` by argparse, or all by
    classes that inherit from none.
    """
    text = text_around(program, program.parent)
    parsed = {name for words in _HF_PARSER.findall(text) for name in re.findall(r"[\w.]+", words)}
    if parsed or _USES_HF_PARSER.search(text):
        modules = (f"{module.replace('.', '/')}.py" for module in _IMPORTS.findall(text))
        imported = (text_around(program.parent / module, program.parent) for module in modules)
        baseless = {name for each in (text, *imported) for name in _BASELESS.findall(each)}
        return bool(parsed) and parsed <= baseless
    if "fire.Fire(" in text:  # which takes a function's arguments for options
        return True
    options = (word for word in STRING.findall(text) if word.startswith("--"))
    declared = {option.lstrip("-").replace("-", "_") for option in options}
    return _OWN_PARSER.search(text) is not None and not names.isdisjoint(declared)


def hands_options_on(program: Path) -> bool:
    """Return whether a program may hand its options to another, by a parser that isn't
    transformers'.
    """
    text = text_around(program, program.parent)
    return _OTHER_PARSER.search(text) is not None and not _ANY_PARSER.search(text)


def writes_rate(holder: str, rate: float) -> bool:
    """Return whether Python beside the config `holder` writes this learning rate: `lr=0.001`."""
    return any(
        python_float(written) == rate
        for folder in islice(folders_above(holder), 1)
        for text in texts_of(folder, ("*.py",), "lr")
        for written in _RATE.findall(text)
    )


def hands_to_trainer(holder: str) -> bool:
    """Return whether Python near the config `holder` names it to the Trainer:
    `deepspeed="configs/ds_config.json"`.
    """
    return any(_has_handed(folder, Path(holder).name) for folder in folders_above(holder))


@until_next_check(512)
def gives_to_engine(holder: str) -> bool:
    """Return whether all Python that names the config `holder` hands it to DeepSpeed's engine.

    It calls the engine itself, reads no JSON in which it may fill in "auto", and has nothing else
    that does. The Python counts that is in or just below the nearest folder with any.
    """
    name = re.compile(rf"(?<![\w.-]){re.escape(Path(holder).name)}(?![\w-])")
    for folder in folders_above(holder):
        texts = texts_of(folder, ("*.py", "*/*.py"), Path(holder).name)
        naming = [text for text in texts if name.search(text)]
        if naming:
            return all(map(_has_engine_alone, naming))
    return False


def _has_engine_alone(text: str) -> bool:
    """Return whether a program calls DeepSpeed's engine, and has nothing that fills in "auto"."""
    (engine, _), (filler, _) = _SIGNS["the engine"], _SIGNS["a filler"]
    code = _COMMENT.sub("", text)
    fills = filler.search(code) or _MAY_FILL.search(code)
    return engine.search(code) is not None and fills is None


@until_next_check(512)
def _has_handed(folder: Path, name: str) -> bool:
    """Return whether Python in a folder has an argument `deepspeed=` that is this file's name, or a
    variable which the same function or module sets to it.
    """
    texts = tuple(texts_of(folder, ("*.py", "*/*.py"), name))
    if not texts:
        return False  # as nearly always: the patterns take longer to make

    text_of_name = rf"""["'](?:[\w./-]*/)?{re.escape(name)}["']"""
    assignment = re.compile(rf"^([ \t]*)(\w+)[ \t]*=[ \t]*{text_of_name}", re.MULTILINE)
    argument = re.compile(
        rf"^[^#\n]*(?<![.\w])deepspeed\s*=\s*(?:{text_of_name}|(\w+)\b)", re.MULTILINE
    )
    for text in texts:
        of_module = {variable for indent, variable in assignment.findall(text) if not indent}
        for function in _FUNCTION.split(text):
            of_function = {variable for _, variable in assignment.findall(function)}
            # The group of the variable is empty where the argument is the name itself.
            variables_handed = set(argument.findall(function))
            if not variables_handed.isdisjoint({"", *of_module, *of_function}):
                return True
    return False


def tells(sign: str, holder: str) -> bool:
    """Return whether files near above the file `holder` show a sign, by its name in `_SIGNS`."""
    pattern, names = _SIGNS[sign]
    return any(has_text(folder, pattern, names) for folder in islice(folders_above(holder), _NEAR))


def trains_transformers(holder: str) -> bool:
    """Return whether a program near above the file `holder` makes the engine, and it or a module
    that it imports loads a model of Transformers'.
    """
    (engine, patterns), (models, _) = _SIGNS["the engine"], _SIGNS["Transformers' models"]
    folders = islice(folders_above(holder), _NEAR)
    files = (
        path
        for folder in folders
        for pattern in patterns
        for path in islice(matching(pattern, folder, folder), MOST_FILES)
    )
    makers = (path for path in files if engine.search(text_around(path, path.parent)))
    return any(
        models.search(text_around(path, path.parent)) is not None
        for maker in makers
        for path in (maker, *imported_by(maker))
    )


def spreads_over_gpus(launch: Launch, gpus_each: int) -> bool:
    """Return whether each process of a line's program uses so many GPUs by itself.

    It puts parts of its model on devices by number or by a map, has copies of the model on all of
    them, or takes its first GPU by its rank times their number.
    """
    text = program_text(launch) or ""
    devices = {number for numbers in _DEVICE.findall(text) for number in numbers if number}
    if len(devices) > 1 or _DEVICE_MAP.search(text):
        return True
    if _COPIES.search(text) and "DistributedDataParallel" not in text:
        return True
    factors = (factor for factors in _BY_RANK.findall(text) for factor in factors if factor)
    return any(factor == str(gpus_each) or _OF_GPUS.search(factor) for factor in factors)


def loads_json(launch: Launch) -> bool:
    """Return whether the program of a launch line reads its DeepSpeed config by Python's json too,
    which is strict.
    """
    return _LOADS_JSON.search(program_text(launch) or "") is not None


def reads_its_own_way(holder: str) -> bool:
    """Return whether Python above the arguments file `holder` is there, and has none of
    transformers' parsers; or whether all that names the file loads it as YAML for itself.
    """
    naming = _texts_naming(holder)
    if naming and all(_LOADS_YAML.search(text) for text in naming):
        return not any(map(_TAKES_VALUES.search, naming))
    return has_programs(holder) and not any(
        has_text(folder, _ANY_PARSER, _PROGRAMS) for folder in folders_above(holder)
    )


def is_read_by_program(holder: str) -> bool:
    """Return whether Python above accelerate's config `holder` names it, other than on a line of
    `accelerate launch`.
    """
    naming = _texts_naming(holder)
    return bool(naming) and not any(map(_LAUNCHES.search, naming))


def _texts_naming(holder: str) -> set[str]:
    """The texts of Python above a file that have its name in quotes."""
    name = Path(holder).name
    quoted = re.compile(rf"""["'][^"'\n]{{0,200}}(?<![\w.-]){re.escape(name)}["']""")
    return {
        text
        for folder in folders_above(holder)
        for text in texts_of(folder, _PROGRAMS, name)
        if quoted.search(text)
    }


#: Python beside a file, and in the folders below it.
_PROGRAMS: Final = ("*.py", "*/*.py", "*/*/*.py")
#: `accelerate launch` on a line that a program starts, as one text or as several.
_LAUNCHES: Final = lazy_pattern(r"\baccelerate[\s\"',]{1,9}launch\b")


def release_for(program: str, holder: str, launches: Iterable[Launch]) -> Release:
    """The release of a program by which the file `holder` is judged.

    It is what the script of a launch installs; else what is named above the file, or above what is
    started; else the newest.
    """
    launches = tuple(launches)
    for script in {id(launch.script): launch.script for launch in launches}.values():
        installed = installed_by(program, script.text.path, script.text.content)
        if installed is not None:
            return installed
    places = (holder, *filter(None, map(program_of, launches)))
    releases = filter(None, (release_of(program, str(place)) for place in places))
    first = next(releases, newest(program))
    if first.exact:
        return first
    # A pin that is beside what is started is exact for that, wherever the file itself lies.
    return next((each for each in releases if each.exact and each.where == first.where), first)


def release_in(submission: Submission, program: str, path: str) -> Release:
    """The release of a program that the file at `path` of a submission is judged by."""
    key, by_folder = (program, dirname(path)), submission.files.releases
    if key not in by_folder:
        by_folder[key] = release_for(program, path, submission.launches)
    release: Release = by_folder[key]
    return release
